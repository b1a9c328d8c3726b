//! Settings: defaults, one TOML file, and files in the style of `rmds.cnf`.
