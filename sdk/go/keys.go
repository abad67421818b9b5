package tribunal

import (
	"encoding/base64"
	"unicode/utf8"
)

// keyFields splits a key into its two wire fields: text if it is UTF-8, else base64.
func keyFields(key string) (text, inBase64 *string) {
	if utf8.ValidString(key) {
		return &key, nil
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(key))
	return nil, &encoded
}

// keyOf joins the two wire fields of a key; false if both are absent.
func keyOf(text, inBase64 *string) (string, bool, error) {
	switch {
	case text != nil:
		return *text, true, nil
	case inBase64 == nil:
		return "", false, nil
	}
	key, err := base64.StdEncoding.DecodeString(*inBase64)
	if err != nil {
		return "", false, misbehaved("%q where base64 was expected", *inBase64)
	}
	return string(key), true, nil
}
