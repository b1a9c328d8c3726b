//! Last values of an item, built from refreshes and updates and given out as a refresh.
