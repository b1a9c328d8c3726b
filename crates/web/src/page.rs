//! The files of the web page. They are part of the program, so that the page works offline and matches the release.

use crate::Response;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal $kind:ident $file:literal,)*) => {
        /// Path, content type and text of each file.
        const FILES: &[(&str, &str, &str)] = &[$(($path, $kind, include_str!(concat!("../page/", $file))),)*];
    };
}

files! {
    "/" HTML "index.html",
    "/page/page.css" STYLE "page.css",
    "/page/icon.svg" PICTURE "icon.svg",
    "/page/main.js" SCRIPT "main.js",
    "/page/dom.js" SCRIPT "dom.js",
    "/page/rates.js" SCRIPT "rates.js",
    "/page/map.js" SCRIPT "map.js",
    "/page/node.js" SCRIPT "node.js",
    "/page/details.js" SCRIPT "details.js",
    "/page/market.js" SCRIPT "market.js",
}

/// The file at this path.
pub(crate) fn file(path: &str) -> Option<Response> {
    let (_, kind, text) = FILES.iter().find(|(at, ..)| *at == path)?;
    Some(Response::new(kind, *text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Content-Security-Policy allows neither, so each would be an error in the browser.
    #[test]
    fn files_have_no_inline_script_and_no_address_of_another_server() {
        for (path, kind, text) in FILES {
            for address in text.match_indices("://").map(|(at, _)| &text[at.saturating_sub(4)..]) {
                let is_namespace = address.starts_with("http://www.w3.org/2000/svg");
                assert!(is_namespace, "{path}: {}", address.chars().take(40).collect::<String>());
            }
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!text.contains(word), "{path}: {word}");
            }
            if *kind == HTML {
                for word in ["<style", "style=", "onload=", "onclick=", "javascript:"] {
                    assert!(!text.contains(word), "{path}: {word}");
                }
                assert_eq!(
                    text.matches("<script").count(),
                    text.matches("<script type=\"module\" src=").count()
                );
            }
        }
    }

    #[test]
    fn every_import_is_served() {
        for (path, _, text) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let from = line.split('"').nth(1).unwrap_or_else(|| panic!("{path}: {line}"));
                let at = format!("/page/{}", from.trim_start_matches("./"));
                assert!(file(&at).is_some(), "{path}: {line}");
            }
        }
    }
}
