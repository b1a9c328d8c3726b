//! The profile of cargo with which a program was built.

use std::path::Path;

/// The options of `cargo build` that build into the folder of this program; none for a development build, and for a
/// program that is installed.
#[must_use]
pub fn build_options(program: &Path) -> &'static str {
    match program.parent().and_then(Path::file_name).and_then(|folder| folder.to_str()) {
        Some("release") => " --release",
        Some("dist") => " --profile dist",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_from_the_folder_of_a_program() {
        for (folder, options) in
            [("debug", ""), ("release", " --release"), ("dist", " --profile dist"), ("bin", "")]
        {
            assert_eq!(build_options(&Path::new("/target").join(folder).join("utipc")), options);
        }
        assert_eq!(build_options(Path::new("utipc")), "");
    }
}
