//! Sessions towards what supplies data: providers, point-to-point servers, publishers that dialled us.
