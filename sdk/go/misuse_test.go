package tribunal_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	tribunal "tribunal.internal/client"
	"tribunal.internal/client/wire"
)

func TestAnAPIKeyThatNoHeaderCanHaveIsAMisuse(t *testing.T) {
	var misuse *tribunal.Misuse
	for _, key := range []string{"a\nb", "schlüssel", "a\x00"} {
		if _, err := tribunal.New("http://127.0.0.1:1", tribunal.Options{APIKey: key}); !errors.As(err, &misuse) {
			t.Errorf("%q: %v", key, err)
		}
	}
	// As if read from a file.
	if _, err := connectedTo(t, serverURL(t), tribunal.Options{APIKey: "trb_0\n"}).Stores(t.Context()); err != nil {
		t.Error(err)
	}
}

// A request that cannot be written looks like one whose reply was lost.
func TestANameOrATraceContextThatNoHeaderCanHaveIsAMisuse(t *testing.T) {
	var misuse *tribunal.Misuse
	if _, err := tribunal.New("http://127.0.0.1:1", tribunal.Options{ClientName: "a\nb"}); !errors.As(err, &misuse) {
		t.Error(err)
	}
	client := connectedTo(t, serverURL(t), tribunal.Options{ClientName: "zürich"})
	put(t, client, freshPrefix(), 1)
	_, err := client.Run(t.Context(), tribunal.BeginOptions{Traceparent: "00-\n"}, func(_ context.Context, txn *tribunal.Transaction) error {
		txn.Put("kv", freshPrefix(), 1)
		return nil
	})
	if !errors.As(err, &misuse) {
		t.Error(err)
	}
}

func TestAnAbsentRowCannotBeDecoded(t *testing.T) {
	row, err := connected(t).Row(t.Context(), "kv", freshPrefix())
	var misuse *tribunal.Misuse
	if err != nil || row != nil || !errors.As(row.Decode(new(int)), &misuse) {
		t.Error(row, err)
	}
}

// The service closes the connection when it refuses a body that is on its way, which may lose the refusal.
func TestARequestThatIsTooLargeIsNotSent(t *testing.T) {
	client := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{})
	txn := client.BeginLocal("")
	txn.Put("kv", "a", strings.Repeat("x", 11<<20))
	var misuse *tribunal.Misuse
	if _, err := txn.Commit(t.Context()); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "limit") {
		t.Error(err)
	}
	if _, err := client.Batch(t.Context(), prepared(t, txn)); !errors.As(err, &misuse) {
		t.Error(err)
	}
}

func TestANegativeDurationIsAMisuse(t *testing.T) {
	client := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{})
	_, begin := client.Begin(t.Context(), tribunal.BeginOptions{Wait: -1})
	_, rows := client.ReadRowsWith(t.Context(), "kv", nil, tribunal.ReadOptions{Wait: -1})
	_, ranges := client.ReadRangesWith(t.Context(), "kv", nil, tribunal.ReadOptions{Wait: -1})
	for _, err := range []error{begin, rows, ranges} {
		var misuse *tribunal.Misuse
		if !errors.As(err, &misuse) || !strings.Contains(err.Error(), "Wait") {
			t.Error(err)
		}
	}
	for name, options := range map[string]tribunal.Options{
		"Timeout":          {Timeout: -1},
		"ResolveTimeout":   {ResolveTimeout: -1},
		"EndpointTimeout":  {EndpointTimeout: -1},
		"EndpointCoolDown": {EndpointCoolDown: -1},
		"Retry.WaitMin":    {Retry: tribunal.RetryPolicy{WaitMin: -1}},
		"Retry.WaitMax":    {Retry: tribunal.RetryPolicy{WaitMax: -1}},
		"AttemptsMax":      {Retry: tribunal.RetryPolicy{AttemptsMax: -1}},
	} {
		var misuse *tribunal.Misuse
		if _, err := tribunal.New("http://127.0.0.1:1", options); !errors.As(err, &misuse) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Such as math.MaxInt64, which means no timeout.
func TestTheLongestDurationIsLong(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	client, ctx := connectedTo(t, serverURL(t), tribunal.Options{
		Timeout: longest, ResolveTimeout: longest, EndpointTimeout: longest, EndpointCoolDown: longest,
		Retry: tribunal.RetryPolicy{AttemptsMax: math.MaxInt, WaitMin: time.Nanosecond, WaitMax: longest},
	}), t.Context()
	put(t, client, freshPrefix(), 1)
	stream := client.CommitStream()
	defer stream.Close()
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}, Wait: longest}))
	txn.Put("kv", freshPrefix(), 1)
	verdict, err := stream.Commit(ctx, prepared(t, txn)[0])
	committed(t, verdict, err)
	_ = must[tribunal.Status](t)(client.Status(ctx, txn.ID(), false, longest))
	_ = must[*tribunal.LogRecord](t)(client.Log("kv", tribunal.LogOptions{Wait: longest}).Next(ctx))
	_ = must[*tribunal.RowReads](t)(client.ReadRowsWith(ctx, "kv", []tribunal.RowRead{{Key: "a"}}, tribunal.ReadOptions{Wait: longest}))
}

func TestAnotherDefaultTransportIsNoObstacle(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	http.DefaultTransport = struct{ http.RoundTripper }{usual}
	put(t, connectedTo(t, serverURL(t), tribunal.Options{}), freshPrefix(), 1)
}

// Such as an id that was never set. Dots would name another resource.
func TestANameThatIsNoSegmentOfAPathIsAMisuse(t *testing.T) {
	client, ctx := connectedTo(t, serverURL(t), tribunal.Options{}), t.Context()
	for _, name := range []string{"", ".", ".."} {
		for what, use := range map[string]func() error{
			"Status":         func() error { _, err := client.Status(ctx, name, false, 0); return err },
			"Abort":          func() error { _, err := client.Abort(ctx, name); return err },
			"Row":            func() error { _, err := client.Row(ctx, name, "a"); return err },
			"Rows":           func() error { _, err := client.Rows(ctx, name, tribunal.KeyRange{Limit: 1}); return err },
			"ReadRanges":     func() error { _, err := client.ReadRanges(ctx, name, nil); return err },
			"DeclareStore":   func() error { _, err := client.DeclareStore(ctx, name, wire.StoreDeclaration{}); return err },
			"Store":          func() error { _, err := client.Store(ctx, name); return err },
			"SetOffset":      func() error { _, err := client.SetOffset(ctx, name, "kv", tribunal.Offset{}); return err },
			"ForgetConsumer": func() error { return client.ForgetConsumer(ctx, name) },
		} {
			var misuse *tribunal.Misuse
			if err := use(); !errors.As(err, &misuse) || !strings.Contains(err.Error(), strconv.Quote(name)) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
}

func TestAFileOfAuthoritiesForAnHTTPClientOfItsOwnIsAMisuse(t *testing.T) {
	var misuse *tribunal.Misuse
	options := tribunal.Options{CAFile: "ca.pem", HTTPClient: &http.Client{}}
	if _, err := tribunal.New("https://127.0.0.1:1", options); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "HTTPClient") {
		t.Error(err)
	}
}

func TestNilIsAMisuse(t *testing.T) {
	client := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{})
	stream := client.CommitStream()
	defer stream.Close()
	commits := append(prepared(t, client.BeginLocal("")), nil)
	for name, use := range map[string]func(context.Context) error{
		"Commit":       func(ctx context.Context) error { _, err := client.Commit(ctx, nil); return err },
		"Batch":        func(ctx context.Context) error { _, err := client.Batch(ctx, commits); return err },
		"Validate":     func(ctx context.Context) error { _, err := client.Validate(ctx, nil); return err },
		"Run":          func(ctx context.Context) error { _, err := client.Run(ctx, tribunal.BeginOptions{}, nil); return err },
		"CommitStream": func(ctx context.Context) error { _, err := stream.Commit(ctx, nil); return err },
	} {
		var misuse *tribunal.Misuse
		if err := use(t.Context()); !errors.As(err, &misuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALimitThatIsNoneIsAMisuse(t *testing.T) {
	client, ctx := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{}), t.Context()
	for _, limit := range []int{-1, 10_001, 1<<32 + 3} {
		ranges := []tribunal.KeyRange{{Limit: limit}}
		_, rows := client.Rows(ctx, "kv", tribunal.KeyRange{Limit: limit})
		_, read := client.ReadRanges(ctx, "kv", ranges)
		_, scan := client.BeginLocal("").Scan(ctx, "kv", "", "", limit)
		_, begin := client.Begin(ctx, tribunal.BeginOptions{Ranges: map[string][]tribunal.KeyRange{"kv": ranges}})
		for _, err := range []error{rows, read, scan, begin} {
			var misuse *tribunal.Misuse
			if !errors.As(err, &misuse) || !strings.Contains(err.Error(), strconv.Itoa(limit)) {
				t.Error(limit, err)
			}
		}
	}
}

func TestANegativeLimitOfALogIsAMisuse(t *testing.T) {
	client := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{})
	var misuse *tribunal.Misuse
	if _, err := client.Log("kv", tribunal.LogOptions{PageMax: -1}).Next(t.Context()); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "PageMax") {
		t.Error(err)
	}
}

func TestALimitOfALogThatIsTooLargeIsRefusedByTheService(t *testing.T) {
	client, ctx := connected(t), t.Context()
	_, err := client.Log("kv", tribunal.LogOptions{PageMax: 1<<32 + 3, Wait: -1}).Next(ctx)
	var mistake *tribunal.ClientMistake
	if !errors.As(err, &mistake) {
		t.Error(err)
	}
	must[*tribunal.RangeReads](t)(client.ReadRanges(ctx, "kv", []tribunal.KeyRange{{Start: "a", End: "b"}}))
}

// JSON would name something else.
func TestTextThatIsNotUTF8IsAMisuse(t *testing.T) {
	client, ctx, store := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{}), t.Context(), "a\xff"
	begin := func(options tribunal.BeginOptions) error { _, err := client.Begin(ctx, options); return err }
	changed := func(change func(*tribunal.Transaction)) error {
		txn := client.BeginLocal("")
		change(txn)
		return txn.Err()
	}
	stream := client.CommitStream()
	defer stream.Close()
	alone := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{NoCoalesce: true})
	commits := map[string]*tribunal.PreparedCommit{"an id": {TxnID: store}}
	reads := []wire.Read{{Store: store, Key: new(string)}}
	commits["a read"] = &tribunal.PreparedCommit{TxnID: "txn", Request: wire.CommitRequest{Reads: &reads}}
	snapshots := map[string]string{store: "1"}
	commits["a snapshot"] = &tribunal.PreparedCommit{TxnID: "txn", Request: wire.CommitRequest{Snapshots: &snapshots}}
	uses := map[string]func() error{
		"Row":        func() error { _, err := client.Row(ctx, store, "a"); return err },
		"Rows":       func() error { _, err := client.Rows(ctx, store, tribunal.KeyRange{Limit: 1}); return err },
		"ReadRanges": func() error { _, err := client.ReadRanges(ctx, store, nil); return err },
		"session": func() error {
			_, err := client.ReadRowsWith(ctx, "kv", nil, tribunal.ReadOptions{Session: store})
			return err
		},
		"session ranges": func() error {
			_, err := client.ReadRangesWith(ctx, "kv", nil, tribunal.ReadOptions{Session: store})
			return err
		},
		"Get":          func() error { _, err := client.BeginLocal("").Get(ctx, store, "a"); return err },
		"GetMany":      func() error { _, err := client.BeginLocal("").GetMany(ctx, store, []string{"a"}); return err },
		"Scan":         func() error { _, err := client.BeginLocal("").Scan(ctx, store, "", "", 1); return err },
		"Store":        func() error { _, err := client.Store(ctx, store); return err },
		"DeclareStore": func() error { _, err := client.DeclareStore(ctx, store, wire.StoreDeclaration{}); return err },
		"declaration": func() error {
			_, err := client.DeclareStore(ctx, "kv", wire.StoreDeclaration{Adaptor: &store})
			return err
		},
		"Log":          func() error { _, err := client.Log(store, tribunal.LogOptions{}).Next(ctx); return err },
		"Log, its log": func() error { _, err := client.Log("kv", tribunal.LogOptions{Log: store}).Next(ctx); return err },
		"Offset":       func() error { _, err := client.Offset(ctx, "consumer", store); return err },
		"Offset of":    func() error { _, err := client.Offset(ctx, store, "kv"); return err },
		"SetOffset":    func() error { _, err := client.SetOffset(ctx, "consumer", store, tribunal.Offset{}); return err },
		"SetOffset of": func() error { _, err := client.SetOffset(ctx, store, "kv", tribunal.Offset{}); return err },
		"SetOffset in": func() error {
			_, err := client.SetOffset(ctx, "consumer", "kv", tribunal.Offset{Log: store})
			return err
		},
		"ForgetConsumer": func() error { return client.ForgetConsumer(ctx, store) },
		"Status":         func() error { _, err := client.Status(ctx, store, false, 0); return err },
		"Abort":          func() error { _, err := client.Abort(ctx, store); return err },
		"Stores":         func() error { return begin(tribunal.BeginOptions{Stores: []string{store}}) },
		"Read":           func() error { return begin(tribunal.BeginOptions{Read: map[string][]string{store: nil}}) },
		"Ranges":         func() error { return begin(tribunal.BeginOptions{Ranges: map[string][]tribunal.KeyRange{store: nil}}) },
		"Session":        func() error { return begin(tribunal.BeginOptions{Session: store}) },
		"Traceparent":    func() error { return begin(tribunal.BeginOptions{Traceparent: store}) },
		"ClientName":     func() error { _, err := tribunal.New("http://a", tribunal.Options{ClientName: store}); return err },
		"Put":            func() error { return changed(func(txn *tribunal.Transaction) { txn.Put(store, "a", 1) }) },
		"Delete":         func() error { return changed(func(txn *tribunal.Transaction) { txn.Delete(store, "a") }) },
		"AddOr":          func() error { return changed(func(txn *tribunal.Transaction) { txn.AddOr(store, "a", 1, 0) }) },
		"Observe":        func() error { return changed(func(txn *tribunal.Transaction) { txn.Observe(store, "a", 1) }) },
		"ObserveRange":   func() error { return changed(func(txn *tribunal.Transaction) { txn.ObserveRange(store, "", "") }) },
	}
	for what, commit := range commits {
		uses["Commit of "+what] = func() error { _, err := client.Commit(ctx, commit); return err }
		uses["Commit alone of "+what] = func() error { _, err := alone.Commit(ctx, commit); return err }
		uses["CommitStream of "+what] = func() error { _, err := stream.Commit(ctx, commit); return err }
		uses["Batch of "+what] = func() error { _, err := client.Batch(ctx, []*tribunal.PreparedCommit{commit}); return err }
		uses["Validate of "+what] = func() error { _, err := client.Validate(ctx, commit); return err }
	}
	for name, use := range uses {
		var misuse *tribunal.Misuse
		if err := use(); !errors.As(err, &misuse) || !strings.Contains(err.Error(), `"a\xff"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// reading encodes itself as its transaction's writes.
type reading struct{ txn *tribunal.Transaction }

func (r reading) MarshalJSON() ([]byte, error) {
	row, err := r.txn.Get(context.Background(), "kv", "a")
	if err != nil {
		return nil, err
	}
	return row.Value, nil
}

func TestAValueMayReadItsTransactionToEncodeItself(t *testing.T) {
	txn := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{}).BeginLocal("")
	txn.Put("kv", "a", 1)
	txn.Put("kv", "b", reading{txn})
	row := must[*tribunal.Row](t)(txn.Get(t.Context(), "kv", "b"))
	equal(t, "value", string(row.Value), "1")
}

func TestAWriteThatCannotWorkTellsWhatToDo(t *testing.T) {
	client := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{})
	for _, one := range []struct {
		text  string
		write func(*tribunal.Transaction)
	}{
		{"value is an integer, not a string", func(txn *tribunal.Transaction) { txn.Put("kv", "a", "text"); txn.Add("kv", "a", 1) }},
		{"value is an integer, not null", func(txn *tribunal.Transaction) { txn.Put("kv", "a", nil); txn.Add("kv", "a", 1) }},
		{"adds to a row that it deleted before: use AddOr", func(txn *tribunal.Transaction) {
			txn.Delete("kv", "a")
			txn.Add("kv", "a", 1)
		}},
		{"fits into 64 bits", func(txn *tribunal.Transaction) { txn.Put("kv", "a", math.MaxInt64); txn.Add("kv", "a", 1) }},
		{"fits into 64 bits", func(txn *tribunal.Transaction) { txn.Put("kv", "a", uint64(1<<63)); txn.Add("kv", "a", 1) }},
		{"puts and deletes a row that it has not read: read the row", func(txn *tribunal.Transaction) {
			txn.Put("kv", "a", 1)
			txn.Delete("kv", "a")
		}},
		{"adds to and deletes a row that it has not read: read the row", func(txn *tribunal.Transaction) {
			txn.AddOr("kv", "a", 1, 0)
			txn.Delete("kv", "a")
		}},
	} {
		txn := client.BeginLocal("")
		one.write(txn)
		var misuse *tribunal.Misuse
		if err := txn.Err(); !errors.As(err, &misuse) || !strings.Contains(err.Error(), one.text) {
			t.Errorf("%v instead of %q", err, one.text)
		}
	}
}

// copyOf copies a transaction, as passing it by value would; go vet reports that.
func copyOf(txn *tribunal.Transaction) *tribunal.Transaction {
	copied := reflect.New(reflect.TypeFor[tribunal.Transaction]())
	copied.Elem().Set(reflect.ValueOf(txn).Elem())
	return copied.Interface().(*tribunal.Transaction)
}

// A copy shares its written rows with the original, but not the list of those that the commit contains.
func TestACopyOfATransactionAndOneThatWasNotBegunCannotBeUsed(t *testing.T) {
	client, ctx := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{}), t.Context()
	for name, use := range map[string]func(*tribunal.Transaction) error{
		"Put":          func(txn *tribunal.Transaction) error { txn.Put("kv", "a", 1); return txn.Err() },
		"Delete":       func(txn *tribunal.Transaction) error { txn.Delete("kv", "a"); return txn.Err() },
		"AddOr":        func(txn *tribunal.Transaction) error { txn.AddOr("kv", "a", 1, 0); return txn.Err() },
		"Observe":      func(txn *tribunal.Transaction) error { txn.Observe("kv", "a", 1); return txn.Err() },
		"ObserveRange": func(txn *tribunal.Transaction) error { txn.ObserveRange("kv", "a", "b"); return txn.Err() },
		"Get":          func(txn *tribunal.Transaction) error { _, err := txn.Get(ctx, "kv", "a"); return err },
		"GetMany":      func(txn *tribunal.Transaction) error { _, err := txn.GetMany(ctx, "kv", nil); return err },
		"Scan":         func(txn *tribunal.Transaction) error { _, err := txn.Scan(ctx, "kv", "", "", 1); return err },
		"Commit":       func(txn *tribunal.Transaction) error { _, err := txn.Commit(ctx); return err },
		"Abort":        func(txn *tribunal.Transaction) error { _, err := txn.Abort(ctx); return err },
	} {
		original := client.BeginLocal("")
		var misuse *tribunal.Misuse
		if err := use(copyOf(original)); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "copy") {
			t.Errorf("%s of a copy: %v", name, err)
		}
		// It must not be committed without the writes to the copy.
		if _, err := original.Prepare(); !errors.As(err, &misuse) {
			t.Errorf("Prepare after %s of a copy: %v", name, err)
		}
		if err := use(new(tribunal.Transaction)); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "not begun") {
			t.Errorf("%s of one that was not begun: %v", name, err)
		}
	}
}
