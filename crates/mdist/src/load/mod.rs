//! The load tools: item lists, message data, pacing, statistics, plots.
