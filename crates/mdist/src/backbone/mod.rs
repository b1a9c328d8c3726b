//! The way from source distributors to their sinks: roles as traits, and TIPC as the first of them.
