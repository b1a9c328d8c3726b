//! Output as text, or as JSON in the layout of iproute2.

/// Collects the output of a command.
#[derive(Debug, Default)]
pub(super) struct Output {
    text: String,
    json: Option<Json>,
}

#[derive(Debug, Default)]
struct Json {
    pretty: bool,
    depth: usize,
    /// Whether the next value needs a comma before it.
    comma: bool,
}

/// A value of JSON.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    Text(&'a str),
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl Output {
    /// The output so far.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Adds plain text, in JSON output too.
    pub(super) fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds text that JSON output leaves out.
    pub(super) fn text(&mut self, text: &str) {
        if self.json.is_none() {
            self.text.push_str(text);
        }
    }

    /// Adds a value: `text` to text output, or the value with its key to JSON output.
    pub(super) fn any<'v>(&mut self, key: &str, value: impl Into<Value<'v>>, text: &str) {
        if self.json.is_none() {
            return self.text.push_str(text);
        }
        if !key.is_empty() {
            self.name(key);
        }
        self.separate();
        match value.into() {
            Value::Number(number) => self.text.push_str(&number.to_string()),
            Value::Text(text) => self.quote(text),
        }
    }

    /// Begins JSON output, one array until [`Self::end`], if JSON was requested.
    pub(super) fn begin(&mut self, json: bool, pretty: bool) {
        if json {
            self.json = Some(Json { pretty, ..Json::default() });
            self.open_array("");
        }
    }

    pub(super) fn end(&mut self) {
        if self.json.is_some() {
            self.close_array();
            self.text.push('\n');
            self.json = None;
        }
    }

    /// Drops JSON output that cannot be completed.
    pub(super) fn abandon(&mut self) {
        if self.json.take().is_some() {
            self.text.clear();
        }
    }

    /// Adds an object to JSON output. It has the name `key` if it is in another object.
    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.open_object(key);
        fill(self);
        self.close_object();
    }

    pub(super) fn open_object(&mut self, key: &str) {
        if self.json.is_some() {
            if !key.is_empty() {
                self.name(key);
            }
            self.open('{');
        }
    }

    pub(super) fn close_object(&mut self) {
        if let Some(json) = &mut self.json {
            json.depth -= 1;
            if json.comma {
                self.line();
            }
            self.close('}');
        }
    }

    /// Adds an array to JSON output.
    pub(super) fn array(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.open_array(key);
        fill(self);
        self.close_array();
    }

    fn open_array(&mut self, key: &str) {
        let Some(pretty) = self.json.as_ref().map(|json| json.pretty) else { return };
        if !key.is_empty() {
            self.name(key);
        }
        self.open('[');
        if pretty {
            self.text.push(' ');
        }
    }

    fn close_array(&mut self) {
        let Some(json) = &mut self.json else { return };
        json.depth -= 1;
        if json.pretty && json.comma {
            self.text.push(' ');
        }
        self.close(']');
    }

    fn open(&mut self, with: char) {
        self.separate();
        self.text.push(with);
        if let Some(json) = &mut self.json {
            json.depth += 1;
            json.comma = false;
        }
    }

    fn close(&mut self, with: char) {
        self.text.push(with);
        if let Some(json) = &mut self.json {
            json.comma = true;
        }
    }

    /// Adds a comma if a value precedes.
    fn separate(&mut self) {
        if let Some(json) = &mut self.json
            && std::mem::replace(&mut json.comma, true)
        {
            self.text.push(',');
        }
    }

    fn line(&mut self) {
        if let Some(json) = self.json.as_ref().filter(|json| json.pretty) {
            self.text.push('\n');
            self.text.push_str(&"    ".repeat(json.depth));
        }
    }

    fn name(&mut self, key: &str) {
        self.separate();
        self.line();
        self.quote(key);
        self.text.push(':');
        if let Some(json) = &mut self.json {
            json.comma = false;
            if json.pretty {
                self.text.push(' ');
            }
        }
    }

    fn quote(&mut self, text: &str) {
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '\t' => self.text.push_str("\\t"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '"' | '\\' => self.text.extend(['\\', letter]),
                control if control.is_ascii_control() => {
                    self.text.push_str(&format!("\\u{:04x}", u32::from(control)));
                }
                other => self.text.push(other),
            }
        }
        self.text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(json: bool, pretty: bool) -> String {
        let mut out = Output::default();
        out.begin(json, pretty);
        out.object("", |out| {
            out.any("link", "a\"b", "Link <a>\n");
            out.array("state", |out| out.any("", "ACTIVE", "  ACTIVE"));
            out.array("none", |_| {});
            out.object("rx", |out| out.any("rx", 5_u32, " RX:5\n"));
        });
        out.object("", |out| out.any("n", 1_u32, "1\n"));
        out.end();
        out.take()
    }

    #[test]
    fn json_is_laid_out_as_iproute2_does() {
        let plain = r#"[{"link":"a\"b","state":["ACTIVE"],"none":[],"rx":{"rx":5}},{"n":1}]"#;
        assert_eq!(sample(true, false), format!("{plain}\n"));
        let pretty = "[ {\n        \"link\": \"a\\\"b\",\n        \"state\": [ \"ACTIVE\" ],\n        \"none\": [ ],\n        \
                      \"rx\": {\n            \"rx\": 5\n        }\n    },{\n        \"n\": 1\n    } ]\n";
        assert_eq!(sample(true, true), pretty);
        assert_eq!(sample(false, true), "Link <a>\n  ACTIVE RX:5\n1\n");
    }
}
