//! Compiling the C programs of a measurement or a campaign.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Compiles `source`, named `name`.c, into `folder`/`name`, with `options` after it. The inner error means
/// that no compiler is installed.
///
/// # Errors
/// The source cannot be written, or does not compile.
pub fn compile(
    folder: &Path,
    name: &str,
    source: &str,
    options: &[impl AsRef<OsStr>],
) -> Result<Result<PathBuf, String>> {
    let (program, file) = (folder.join(name), folder.join(format!("{name}.c")));
    std::fs::write(&file, source).with_context(|| format!("write {}", file.display()))?;
    match Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(&file).args(options).output() {
        Err(why) => Ok(Err(format!("no C compiler found (cc: {why})"))),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "cc cannot compile {name}.c: {text}");
            Ok(Ok(program))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_does_not_compile_is_an_error_that_names_it() {
        let folder = std::env::temp_dir().join(format!("bench-kit-compiler-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let none: [&str; 0] = [];
        let program = compile(&folder, "good", "int main(void) { return 0; }", &none).unwrap();
        assert_eq!(program, Ok(folder.join("good")));
        let error = compile(&folder, "bad", "int main(void) { return", &none).unwrap_err();
        assert!(error.to_string().starts_with("cc cannot compile bad.c: "), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
