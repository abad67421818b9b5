//! Arrays in PostgreSQL's text form, which bind many values as one parameter: `{1,2,NULL,"a \"quoted\" one"}`.

/// An array being built.
#[derive(Debug)]
pub(crate) struct Array(Vec<u8>);

impl Default for Array {
    fn default() -> Self {
        Array(vec![b'{'])
    }
}

impl Array {
    fn separate(&mut self) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
    }

    /// Adds an element that needs no quotes: a number or a truth value.
    pub(crate) fn plain(&mut self, element: &str) {
        self.separate();
        self.0.extend_from_slice(element.as_bytes());
    }

    pub(crate) fn null(&mut self) {
        self.plain("NULL");
    }

    /// Adds an element of any text.
    pub(crate) fn quoted(&mut self, element: &str) {
        self.separate();
        self.0.push(b'"');
        let bytes = element.as_bytes();
        let mut copied = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(byte, b'"' | b'\\') {
                self.0.extend_from_slice(&bytes[copied..at]);
                self.0.push(b'\\');
                copied = at;
            }
        }
        self.0.extend_from_slice(&bytes[copied..]);
        self.0.push(b'"');
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_quoted_so_that_the_server_reads_them_back() {
        let mut array = Array::default();
        array.quoted(r#"a "b" \ {,} NULL"#);
        array.null();
        array.plain("-12");
        array.quoted("");
        assert_eq!(array.finish(), br#"{"a \"b\" \\ {,} NULL",NULL,-12,""}"#);
        assert_eq!(Array::default().finish(), b"{}");
    }
}
