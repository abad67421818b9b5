package tribunal_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	tribunal "tribunal.internal/client"
	"tribunal.internal/client/wire"
)

// In every kind of request, because each encodes its body separately.
func TestAValueIsStoredWithoutEscapesForHTML(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	stream := client.CommitStream()
	defer stream.Close()
	values := map[string]any{"text": "<&>", "raw": json.RawMessage(`"<&>"`), "nested": []any{map[string]json.RawMessage{"<": json.RawMessage(`"&>"`)}}}
	expected := map[string]string{"text": `"<&>"`, "raw": `"<&>"`, "nested": `[{"<":"&>"}]`}
	ways := map[string]func(*tribunal.PreparedCommit) (tribunal.Verdict, error){
		"commit": func(one *tribunal.PreparedCommit) (tribunal.Verdict, error) { return client.Commit(ctx, one) },
		"stream": func(one *tribunal.PreparedCommit) (tribunal.Verdict, error) { return stream.Commit(ctx, one) },
		"batch": func(one *tribunal.PreparedCommit) (tribunal.Verdict, error) {
			results, err := client.Batch(ctx, []*tribunal.PreparedCommit{one})
			if err != nil {
				return nil, err
			}
			return results[0].Verdict, results[0].Err
		},
	}
	for way, commit := range ways {
		for name, value := range values {
			txn := client.BeginLocal("")
			txn.Put("kv", prefix+way+name, value)
			own := must[*tribunal.Row](t)(txn.Get(ctx, "kv", prefix+way+name))
			equal(t, way+": own "+name, string(own.Value), expected[name])
			verdict, err := commit(prepared(t, txn)[0])
			committed(t, verdict, err)
			equal(t, way+": "+name, read(t, client, prefix+way+name), expected[name])
		}
	}
	// The limit counts the value's own bytes.
	long := client.BeginLocal("")
	long.Put("kv", prefix+"long", strings.Repeat("<", 1<<20-2))
	outcome := must[*wire.TxnOutcome](t)(long.Validate(ctx))
	equal(t, "dry run", string(outcome.Status), "would_commit")
	verdict, err := long.Commit(ctx)
	committed(t, verdict, err)
}

func TestAStringThatIsNotUTF8IsAMisuse(t *testing.T) {
	type row struct {
		Names  map[string][]*string
		Hidden string `json:"-"`
		secret string
	}
	client, broken := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{}), "a\xff"
	for name, value := range map[string]any{
		"text": broken, "pointer": &broken, "key": map[string]int{broken: 1}, "list": []any{1, broken},
		"field": row{Names: map[string][]*string{"a": {nil, &broken}}},
	} {
		txn := client.BeginLocal("")
		txn.Put("kv", "a", value)
		var misuse *tribunal.Misuse
		if err := txn.Err(); !errors.As(err, &misuse) || !strings.Contains(err.Error(), `"a\xff"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// In a batch, such a value would cause the others to be refused with it.
	txn := client.BeginLocal("")
	txn.Put("kv", "a", json.RawMessage(`"a`+"\xff"+`"`))
	var misuse *tribunal.Misuse
	if err := txn.Err(); !errors.As(err, &misuse) {
		t.Error(err)
	}
	// The replacement character itself is a character like any other, however it is written.
	for name, value := range map[string]any{
		"text": "\ufffd", "escape": `\ufffd`, "raw": json.RawMessage(`"\ufffd"`), "in a map": map[string]json.RawMessage{"a": []byte(`"\ufffd"`)},
		"hidden": row{Names: map[string][]*string{`\ufffd`: nil}, Hidden: broken, secret: broken}, "bytes": []byte(broken), "nil": nil,
	} {
		txn := client.BeginLocal("")
		txn.Put("kv", "a", value)
		if err := txn.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// As in append(row.Value[:0], ...), which reuses the bytes.
func TestAValueMayBeChangedByItsReader(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	put(t, client, prefix+"read", "read")
	begin := tribunal.BeginOptions{Read: map[string][]string{"kv": {prefix + "read"}}}
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, begin))
	txn.Put("kv", prefix+"written", "written")
	check := func() {
		t.Helper()
		rows := must[[]tribunal.Row](t)(txn.Scan(ctx, "kv", prefix, prefix+"~", 10))
		for _, key := range []string{"read", "written"} {
			row := must[*tribunal.Row](t)(txn.Get(ctx, "kv", prefix+key))
			equal(t, "value", string(row.Value), `"`+key+`"`)
			rows = append(rows, *row)
		}
		for _, row := range rows {
			clear(row.Value)
		}
	}
	check()
	check()
	verdict, err := txn.Commit(ctx)
	committed(t, verdict, err)
	equal(t, "committed", read(t, client, prefix+"written"), `"written"`)
}

// As the README describes.
func TestABinaryValueIsAStructWithBytes(t *testing.T) {
	type binary struct {
		Bytes []byte `json:"$b64"`
	}
	client, key := connected(t), freshPrefix()
	put(t, client, key, binary{[]byte("a\xff\x00")})
	var found binary
	if err := must[*tribunal.Row](t)(client.Row(t.Context(), "kv", key)).Decode(&found); err != nil || string(found.Bytes) != "a\xff\x00" {
		t.Error(found, err)
	}
}
