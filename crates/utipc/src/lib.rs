//! TIPC in user space: service addressing, reliable messaging and topology tracking.
