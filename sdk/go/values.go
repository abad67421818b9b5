package tribunal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"unicode/utf8"
)

// jsonOf encodes as json.Marshal does, except that <, > and & stay as they are. The service stores the text of a value,
// and counts its bytes: every reader would see the escapes, and they could make a value six times as long.
func jsonOf(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// rowValue encodes the value of a row.
func rowValue(value any) (json.RawMessage, error) {
	text, err := jsonOf(value)
	if err != nil {
		return nil, misuse("the value cannot be represented in JSON: %v", err)
	}
	if !utf8.Valid(text) {
		return nil, misuse("the value encodes itself as JSON that is not UTF-8: %q", text[:min(len(text), 100)])
	}
	if broken, found := replacedIn(text, value); found {
		return nil, misuse("the value contains %q, which is not UTF-8 and cannot be represented in JSON: "+
			`write bytes as {"$b64": TEXT}`, broken)
	}
	return text, nil
}

// replacedIn finds a string of a value that is not UTF-8. json has replaced it in the text, and reports no error. It
// first looks for the replacement, which is rare, because finding the string takes longer.
func replacedIn(text []byte, value any) (string, bool) {
	if !bytes.Contains(text, []byte(`\ufffd`)) {
		return "", false
	}
	return notUTF8(reflect.ValueOf(value))
}

// notUTF8 finds a string in a value that json can encode and that is not UTF-8. It skips values that encode themselves,
// such as json.RawMessage.
func notUTF8(value reflect.Value) (string, bool) {
	if !value.IsValid() {
		return "", false
	}
	if value.CanInterface() {
		if _, encodes := value.Interface().(json.Marshaler); encodes {
			return "", false
		}
	}
	switch value.Kind() {
	case reflect.String:
		return value.String(), !utf8.ValidString(value.String())
	case reflect.Pointer, reflect.Interface:
		return notUTF8(value.Elem())
	case reflect.Map:
		for entries := value.MapRange(); entries.Next(); {
			if broken, found := notUTF8(entries.Key()); found {
				return broken, found
			}
			if broken, found := notUTF8(entries.Value()); found {
				return broken, found
			}
		}
	case reflect.Slice, reflect.Array:
		for at := range value.Len() {
			if broken, found := notUTF8(value.Index(at)); found {
				return broken, found
			}
		}
	case reflect.Struct:
		for at := range value.NumField() {
			if field := value.Type().Field(at); !field.IsExported() && !field.Anonymous || field.Tag.Get("json") == "-" {
				continue
			}
			if broken, found := notUTF8(value.Field(at)); found {
				return broken, found
			}
		}
	}
	return "", false
}
