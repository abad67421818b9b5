package tribunal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"tribunal.internal/client/wire"
)

// Options configures a client. The zero value is usable.
type Options struct {
	// APIKey is an API key or token, sent as a bearer token if it is not empty.
	APIKey string
	// CAFile is a PEM file with the certificate authorities to trust over https, instead of those of this machine. With an
	// HTTPClient, name them in its transport.
	CAFile string
	// ClientName identifies this client to rules that are fair between clients.
	ClientName string
	// Timeout bounds one request, in addition to the time that the request itself may wait; 0 means 30 s. Several
	// endpoints share it, and so do the retries of a read.
	Timeout time.Duration
	// ResolveTimeout bounds how long the client queries the outcome of a lost commit, or those of a lost batch, before it
	// returns *OutcomeUnknown; 0 means 30 s.
	ResolveTimeout time.Duration
	// EndpointTimeout is how long an endpoint may take to answer a request, beyond the request's own wait, before the
	// client tries an endpoint that it has not tried yet. The last one gets all the remaining time. 0 means 2 s.
	EndpointTimeout time.Duration
	// EndpointCoolDown is how long an endpoint that failed is skipped, if there are others; 0 means 10 s.
	EndpointCoolDown time.Duration
	// Retry bounds the retries of Run, of reads and of log readers. An attempt of Run that gets no answer takes Timeout:
	// bound all of them with a context.
	Retry RetryPolicy
	// IgnoreOwnWrites lets a transaction begin before what this client has committed to its stores is visible.
	IgnoreOwnWrites bool
	// NoCoalesce sends every commit, Begin and read of rows as a request of its own. By default, concurrent ones are sent
	// as batches; see [Client.Commit].
	NoCoalesce bool
	// OnAttempt is called at the end of each attempt of Run, by the goroutine that runs it: concurrent ones call it
	// concurrently.
	OnAttempt func(Attempt)
	// HTTPClient replaces the default one, which keeps up to 256 idle connections. It cannot be combined with CAFile. Its
	// Timeout also bounds each request, but no stream of a log or of commits. Commit streams use a copy of its
	// *http.Transport, with a connection for each stream. Another RoundTripper is used as it is: if it shares an HTTP/2
	// connection, the service takes three streams at a time, and refuses further ones with status 429.
	HTTPClient *http.Client
}

// durationMax replaces every longer duration, so that sums of durations, and times that far in the future, can be
// represented.
const durationMax = 365 * 24 * time.Hour

// checkDurations bounds the durations of the options, and returns an error if one is negative.
func (o *Options) checkDurations() error {
	for name, duration := range map[string]*time.Duration{
		"Timeout": &o.Timeout, "ResolveTimeout": &o.ResolveTimeout, "EndpointTimeout": &o.EndpointTimeout,
		"EndpointCoolDown": &o.EndpointCoolDown, "Retry.WaitMin": &o.Retry.WaitMin, "Retry.WaitMax": &o.Retry.WaitMax,
	} {
		if *duration < 0 {
			return misuse("the option %s is negative: %v", name, *duration)
		}
		*duration = min(*duration, durationMax)
	}
	if o.Retry.AttemptsMax < 0 {
		return misuse("the option Retry.AttemptsMax is negative: %d; 1 disables retries", o.Retry.AttemptsMax)
	}
	return nil
}

// Client is a client of one service. It is safe for concurrent use: create one for a service, with [New], and keep it.
// It keeps connections, which [Client.CloseIdleConnections] closes, but runs nothing in the background.
type Client struct {
	endpoints *endpoints
	// wires, logs and streams have one client for each endpoint: for requests, and for streams of logs and of commits.
	wires, logs, streams []*wire.Client
	options              Options
	session              session
	commits              coalescer[commitItem, reply[wire.TxnOutcome]]
	begins               coalescer[beginItem, shared[wire.BeginResponse]]
	reads                coalescer[readItem, shared[wire.ReadResponse]]
}

// New creates a client for http://host:port or https://host:port. It connects on first use. Several endpoints of one
// service are separated by commas; see [NewWithEndpoints].
func New(server string, options Options) (*Client, error) {
	return NewWithEndpoints([]string{server}, options)
}

// NewWithEndpoints creates a client for several endpoints of one service, such as the nodes of a cluster. One is in use
// at a time, initially the first. After a failure the client switches to the next one and stays there; it resends
// unanswered requests, commits with the same ids.
func NewWithEndpoints(servers []string, options Options) (*Client, error) {
	if err := options.checkDurations(); err != nil {
		return nil, err
	}
	if options.EndpointCoolDown == 0 {
		options.EndpointCoolDown = 10 * time.Second
	}
	if options.EndpointTimeout == 0 {
		options.EndpointTimeout = 2 * time.Second
	}
	endpoints, err := newEndpoints(servers, options.EndpointTimeout, options.EndpointCoolDown)
	if err != nil {
		return nil, err
	}
	if options.Timeout == 0 {
		options.Timeout = 30 * time.Second
	}
	if options.ResolveTimeout == 0 {
		options.ResolveTimeout = 30 * time.Second
	}
	if options.HTTPClient != nil && options.CAFile != "" {
		return nil, misuse("the options CAFile and HTTPClient exclude each other: name the authorities in the TLS configuration " +
			"of the client's transport")
	}
	if options.HTTPClient == nil {
		transport := defaultTransport()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
		if options.CAFile != "" {
			authorities, err := authoritiesOf(options.CAFile)
			if err != nil {
				return nil, err
			}
			transport.TLSClientConfig = &tls.Config{RootCAs: authorities}
		}
		options.HTTPClient = &http.Client{Transport: transport}
	}
	options.Retry = options.Retry.withDefaults()
	editors := []wire.ClientOption{wire.WithHTTPClient(options.HTTPClient)}
	// A key read from a file may end with a line break.
	options.APIKey = strings.TrimSpace(options.APIKey)
	if strings.ContainsFunc(options.APIKey, func(char rune) bool { return char < ' ' || char > '~' }) {
		return nil, misuse("the API key has characters that no header can have")
	}
	if !isHeader(options.ClientName) {
		return nil, misuse("the client name %q has characters that no header can have", options.ClientName)
	}
	if options.APIKey != "" {
		editors = append(editors, wire.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+options.APIKey)
			return nil
		}))
	}
	c := &Client{endpoints: endpoints, options: options}
	streamed, followed := streamClient(options.HTTPClient), *options.HTTPClient
	// A stream has no timeout: the service sends heartbeats.
	followed.Timeout = 0
	for _, server := range endpoints.urls {
		client, err := wire.NewClient(server, editors...)
		if err != nil {
			return nil, misuse("%q cannot be used: %v", server, err)
		}
		logs, streams := *client, *client
		logs.Client, streams.Client = &followed, streamed
		c.wires, c.logs, c.streams = append(c.wires, client), append(c.logs, &logs), append(c.streams, &streams)
	}
	c.commits.bounds, c.commits.sendOne, c.commits.sendBatch = commitBounds, c.sendCommit, c.sendBatch
	c.begins.bounds, c.begins.sendOne, c.begins.sendBatch = readBounds, c.sendBegin, c.sendBegins
	c.reads.bounds, c.reads.sendOne, c.reads.sendBatch = readBounds, c.sendRead, c.sendReads
	return c, nil
}

// Endpoint returns the URL of the endpoint in use.
func (c *Client) Endpoint() string { return c.endpoints.urls[c.endpoints.current()] }

// CloseIdleConnections closes the idle connections, including those of [Options.HTTPClient]. Without it, they are kept
// for 90 s. The client remains usable. An open commit stream or log reader has a connection of its own: close the
// stream or reader.
func (c *Client) CloseIdleConnections() { c.options.HTTPClient.CloseIdleConnections() }

// defaultTransport returns a copy of the transport of net/http, or one like it if the program has replaced that, for
// example to trace requests.
func defaultTransport() *http.Transport {
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		return transport.Clone()
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}
}

func authoritiesOf(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, misuse("the CA file cannot be read: %v", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, misuse("the CA file %s has no PEM certificate", file)
	}
	return authorities, nil
}

// BeginLocal begins a transaction without a request: with an id created here and without snapshots. Such a transaction
// is limited to tracked stores, to reads of single rows, and to levels other than Snapshot if it reads.
func (c *Client) BeginLocal(isolation Isolation) *Transaction {
	return newTransaction(c, uuid.Must(uuid.NewV7()).String(), isolation)
}

// Run runs work in a transaction and commits it. After a retryable abort the work runs again, on fresh reads, with
// growing waits, so it must have no effects except on its transaction and on variables that it sets each time. It also
// runs again if the service was unavailable for so long that it no longer decides the transaction. Run returns the error
// of the work, and *TransactionAborted after a final abort or the last attempt. row_exists and row_missing are final if
// the work read nothing, or if a fresh read returned the same versions as before.
func (c *Client) Run(ctx context.Context, options BeginOptions, work func(context.Context, *Transaction) error) (*Committed, error) {
	if work == nil {
		return nil, misuse("Run was given no work: the function is nil")
	}
	attempts := attempts{policy: c.options.Retry, report: c.options.OnAttempt}
	var firstAttempt time.Time
	for {
		var txn *Transaction
		begin := func() (err error) { txn, err = c.Begin(ctx, options); return err }
		if err := attempts.available(ctx, "", begin); err != nil {
			return nil, err
		}
		// Conflict rules that let the oldest work win need the time of the first attempt.
		txn.FirstAttempt = firstAttempt
		if firstAttempt.IsZero() {
			firstAttempt = timeOf(txn.id)
		}
		err := work(ctx, txn)
		txn.closing.close(errReturned)
		if err != nil {
			return nil, attempts.failed(txn.id, err)
		}
		prepared, err := txn.Prepare()
		if err != nil {
			return nil, attempts.failed(txn.id, err)
		}
		// *Unavailable means that nothing was decided. The id makes it safe to resend the same request.
		var verdict Verdict
		commit := func() (err error) { verdict, err = c.Commit(ctx, prepared); return err }
		isDecided, err := attempts.decided(ctx, txn.id, commit)
		if err != nil {
			return nil, err
		}
		if !isDecided {
			continue
		}
		txn.closing.decided(verdict)
		if committed, ok := verdict.(*Committed); ok {
			attempts.committed(committed)
			return committed, nil
		}
		if err := attempts.aborted(ctx, txn, verdict.(*Aborted)); err != nil {
			return nil, err
		}
	}
}

// Commit requests the verdict of a prepared commit. It may be repeated: the same id gets the same verdict. While other
// commit requests are in flight, the commit may be queued and sent in a batch; see [Options.NoCoalesce]. If the context
// ends, the error is the context's if nothing was sent, and *OutcomeUnknown otherwise.
func (c *Client) Commit(ctx context.Context, prepared *PreparedCommit) (Verdict, error) {
	if err := mayBeSent(ctx, prepared); err != nil {
		return nil, err
	}
	item, err := newCommitItem(prepared)
	if err != nil {
		return nil, err
	}
	var answer reply[wire.TxnOutcome]
	own := terms{group: item.group(), id: prepared.TxnID, bytes: item.bytes()}
	if c.options.NoCoalesce || !item.isBatchable() {
		answer = c.sendCommit(ctx, item)
	} else {
		var sent bool
		if answer, sent, err = c.commits.submit(ctx, own, item); err != nil {
			answer = endedReply[wire.TxnOutcome](ctx, !sent)
		}
	}
	if lost := answer.lost(); lost != nil {
		return c.recorded(c.resolve(ctx, prepared.TxnID, lost, time.Now().Add(c.options.ResolveTimeout)))
	}
	return c.recorded(decided(prepared.TxnID, answer))
}

// mayBeSent returns an error if commits must not be sent: one is nil or unsendable, or their caller's context has
// ended.
func mayBeSent(ctx context.Context, commits ...*PreparedCommit) error {
	for _, commit := range commits {
		if commit == nil {
			return misuse("the prepared commit is nil")
		}
		if err := cmp.Or(checkName("id of a transaction", commit.TxnID), checkTraceparent(commit.Traceparent)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// checkName returns an error if a name cannot be a path segment: the request would name another resource.
func checkName(what, name string) error {
	if name == "" || name == "." || name == ".." {
		return misuse("%q cannot be the %s", name, what)
	}
	return checkText(what, name)
}

// checkText returns an error if a name is not UTF-8: json would replace the invalid bytes, and so name something else.
func checkText(what, name string) error {
	if !utf8.ValidString(name) {
		return misuse("%q cannot be the %s: it is not UTF-8", name, what)
	}
	return nil
}

// checkStores checks the names of stores.
func checkStores(stores iter.Seq[string]) error {
	for store := range stores {
		if err := checkText("name of a store", store); err != nil {
			return err
		}
	}
	return nil
}

// checkTraceparent returns an error if a trace context cannot be sent.
func checkTraceparent(traceparent string) error {
	if !isHeader(traceparent) {
		return misuse("the Traceparent %q has characters that no header can have", traceparent)
	}
	return nil
}

// isHeader reports whether a text can be the value of a header. Any other text would look like a lost connection.
func isHeader(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(char rune) bool { return char < ' ' || char == 0x7f })
}

// sendCommit sends a commit as a request of its own.
func (c *Client) sendCommit(ctx context.Context, item commitItem) reply[wire.TxnOutcome] {
	return c.sendCommitWithin(ctx, item, c.options.Timeout)
}

// sendCommitWithin sends a commit as a request of its own, with a timeout in addition to the time that the service may
// wait.
func (c *Client) sendCommitWithin(ctx context.Context, item commitItem, timeout time.Duration) reply[wire.TxnOutcome] {
	parameters := wire.TxnCommitParams{}
	if c.options.ClientName != "" {
		parameters.TribunalClient = &c.options.ClientName
	}
	if item.prepared.Traceparent != "" {
		parameters.Traceparent = &item.prepared.Traceparent
	}
	calls := c.failoverWithin(applyWait(item.prepared), timeout)
	answer := askOn(ctx, c, calls, documentOf[wire.TxnOutcome], func(ctx context.Context, at *wire.Client) (*response, error) {
		body := bytes.NewReader(item.body)
		return at.TxnCommitWithBody(ctx, item.prepared.TxnID, &parameters, "application/json", body)
	})
	return inDoubt(answer, calls.maybeTaken)
}

// applyWait returns how long the service may wait for the stores of commits before it answers.
func applyWait(commits ...*PreparedCommit) time.Duration {
	if slices.ContainsFunc(commits, func(c *PreparedCommit) bool { return given(c.Request.Ack) == AckApplied }) {
		return 30 * time.Second
	}
	return 0
}

// Result is the result of one commit of a batch: its verdict, or an error.
type Result struct {
	Verdict Verdict
	Err     error
}

// Batch submits many commits in one request. The results have the order of the commits. A trace context is sent if all
// commits have the same one.
func (c *Client) Batch(ctx context.Context, commits []*PreparedCommit) ([]Result, error) {
	if err := mayBeSent(ctx, commits...); err != nil {
		return nil, err
	}
	body := wire.BatchCommitRequest{Txns: make([]wire.BatchTxn, 0, len(commits))}
	header := http.Header{}
	if c.options.ClientName != "" {
		header.Set("Tribunal-Client", c.options.ClientName)
	}
	for at, commit := range commits {
		request := commit.Request
		body.Txns = append(body.Txns, wire.BatchTxn{
			TxnID: commit.TxnID, Isolation: request.Isolation, Snapshots: request.Snapshots, Priority: request.Priority,
			Ack: request.Ack, Epoch: request.Epoch, FirstAttemptMs: request.FirstAttemptMs, Reads: request.Reads, Ranges: request.Ranges, Writes: request.Writes,
		})
		switch {
		case at == 0 && commit.Traceparent != "":
			header.Set("Traceparent", commit.Traceparent)
		case commit.Traceparent != commits[0].Traceparent:
			header.Del("Traceparent")
		}
	}
	withHeader := func(_ context.Context, request *http.Request) error {
		for name, values := range header {
			request.Header[name] = values
		}
		return nil
	}
	text, err := bodyOf(body)
	if err != nil {
		return nil, err
	}
	calls := c.failover(applyWait(commits...))
	reply := askOn(ctx, c, calls, documentOf[wire.BatchCommitResponse], func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.BatchCommitWithBody(ctx, "application/json", bytes.NewReader(text), withHeader)
	})
	reply = inDoubt(reply, calls.maybeTaken)
	results := make([]Result, len(commits))
	lostReply := reply.lost()
	if reply.data != nil && len(reply.data.Results) != len(commits) {
		lostReply = misbehaved("%d results for %d commits", len(reply.data.Results), len(commits))
	}
	// The commits may have taken effect: each is resolved by its id.
	if lost := lostReply; lost != nil {
		deadline := time.Now().Add(c.options.ResolveTimeout)
		concurrently(len(commits), func(at int) {
			results[at].Verdict, results[at].Err = c.recorded(c.resolve(ctx, commits[at].TxnID, lost, deadline))
		})
		return results, nil
	}
	outcomes, err := settled(reply)
	if err != nil {
		return nil, err
	}
	lost, resendBy := make([]error, len(commits)), time.Now().Add(c.options.Timeout)
	concurrently(len(commits), func(at int) {
		single := inDoubt(singleOf(&outcomes.Results[at], reply.header), calls.maybeTaken)
		// A commit that the endpoint could not decide is sent to the others, if there are any, within one timeout for all.
		if failed := failureOf(single); failed != nil && !calls.isSingle() {
			item, err := newCommitItem(commits[at])
			if err != nil {
				results[at].Err = err
				return
			}
			if left := time.Until(resendBy); left > 0 {
				single = c.sendCommitWithin(ctx, item, left)
			}
			single = inDoubt(single, failed.maybeTaken)
		}
		if lost[at] = single.lost(); lost[at] == nil {
			results[at].Verdict, results[at].Err = c.recorded(decided(commits[at].TxnID, single))
		}
	})
	// They share one deadline, although not all of them are queried at the same time.
	deadline := time.Now().Add(c.options.ResolveTimeout)
	concurrently(len(commits), func(at int) {
		if lost[at] != nil {
			results[at].Verdict, results[at].Err = c.recorded(c.resolve(ctx, commits[at].TxnID, lost[at], deadline))
		}
	})
	return results, nil
}

// concurrentMax bounds the requests that one call has in flight.
const concurrentMax = 64

// concurrently calls do with 0 to count-1, and returns when all calls have returned.
func concurrently(count int, do func(at int)) {
	var calls sync.WaitGroup
	free := make(chan struct{}, concurrentMax)
	for at := range count {
		free <- struct{}{}
		calls.Add(1)
		go func() {
			defer calls.Done()
			defer func() { <-free }()
			do(at)
		}()
	}
	calls.Wait()
}

// Status returns the state of a transaction, after waiting at most wait for its verdict. With fence, a transaction that
// has not arrived can no longer commit.
func (c *Client) Status(ctx context.Context, txnID string, fence bool, wait time.Duration) (Status, error) {
	if err := checkName("id of a transaction", txnID); err != nil {
		return Status{}, err
	}
	waitMs := milliseconds(wait)
	parameters := wire.TxnStatusParams{Fence: &fence, WaitMs: &waitMs}
	outcome, err := settled(ask[wire.TxnOutcome](ctx, c, wait, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.TxnStatus(ctx, txnID, &parameters)
	}))
	if err != nil {
		return Status{}, err
	}
	switch outcome.Status {
	case wire.TxnStateInFlight, wire.TxnStateUnknown, wire.TxnStateUnknownExpired:
		return Status{State: outcome.Status}, nil
	}
	verdict, err := c.recorded(verdictOf(outcome, true, ""))
	return Status{verdict, outcome.Status}, err
}

// Abort aborts a transaction unless it has its verdict already, and returns the verdict. While a commit with this id is
// being decided, the error is *Unavailable: [Client.Status] with fence waits for the verdict.
func (c *Client) Abort(ctx context.Context, txnID string) (Verdict, error) {
	if err := checkName("id of a transaction", txnID); err != nil {
		return nil, err
	}
	return c.recorded(verdict(ask[wire.TxnOutcome](ctx, c, 0, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.TxnAbort(ctx, txnID)
	})))
}

// Validate reports whether a commit would pass now if it were alone: would_commit or would_abort; the verdict itself if
// the id has one. It changes nothing.
func (c *Client) Validate(ctx context.Context, prepared *PreparedCommit) (*wire.TxnOutcome, error) {
	if err := mayBeSent(ctx, prepared); err != nil {
		return nil, err
	}
	body, err := bodyOf(prepared.Request)
	if err != nil {
		return nil, err
	}
	outcome, err := settled(ask[wire.TxnOutcome](ctx, c, 0, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.TxnValidateWithBody(ctx, prepared.TxnID, "application/json", bytes.NewReader(body))
	}))
	if err != nil {
		return nil, err
	}
	switch outcome.Status {
	case wire.TxnStateWouldCommit, wire.TxnStateWouldAbort, wire.TxnStateCommitted, wire.TxnStateAborted:
		return outcome, nil
	}
	return nil, unexpected(outcome.Status)
}

// Row reads a row of an embedded store as it is now, outside any transaction; nil if it is absent.
func (c *Client) Row(ctx context.Context, store, key string) (*Row, error) {
	found, err := c.ReadRows(ctx, store, []RowRead{{Key: key}})
	if err != nil {
		return nil, err
	}
	return found.Rows[0].Row, nil
}

// RowPage has the rows of a range, and the snapshot that they reflect.
type RowPage struct {
	// Applied is the snapshot that the rows reflect.
	Applied Epoch
	RangeRows
}

// Rows reads a range of an embedded store as it is now, outside any transaction. [Client.ReadRanges] reads several.
func (c *Client) Rows(ctx context.Context, store string, keys KeyRange) (*RowPage, error) {
	return c.page(ctx, store, keys, "", 0)
}

// DeclareStore declares a store, or changes one.
func (c *Client) DeclareStore(ctx context.Context, store string, declaration wire.StoreDeclaration) (*wire.StoreInfo, error) {
	if err := checkName("name of a store", store); err != nil {
		return nil, err
	}
	body, err := bodyOf(declaration)
	if err != nil {
		return nil, err
	}
	return settled(ask[wire.StoreInfo](ctx, c, 0, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.PutStoreWithBody(ctx, store, "application/json", bytes.NewReader(body))
	}))
}

// Store returns the state of a store.
func (c *Client) Store(ctx context.Context, store string) (*wire.StoreInfo, error) {
	if err := checkName("name of a store", store); err != nil {
		return nil, err
	}
	return settled(ask[wire.StoreInfo](ctx, c, 0, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.GetStore(ctx, store)
	}))
}

// Stores returns the state of all stores of the namespace.
func (c *Client) Stores(ctx context.Context) ([]wire.StoreInfo, error) {
	list, err := settled(ask[wire.StoreList](ctx, c, 0, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.ListStores(ctx)
	}))
	if err != nil {
		return nil, err
	}
	return list.Stores, nil
}

// resolve settles a transaction whose reply was lost: it has committed, or the fence makes sure that it never does.
// Commits of one batch share a deadline.
func (c *Client) resolve(ctx context.Context, txnID string, lost error, deadline time.Time) (Verdict, error) {
	for failed := 1; time.Now().Before(deadline); failed++ {
		found, err := c.Status(ctx, txnID, true, time.Second)
		var unavailable *Unavailable
		switch {
		case err == nil && found.Verdict != nil:
			return found.Verdict, nil
		case err == nil:
			lost = fmt.Errorf("its status is %s", found.State)
			if found.State == wire.TxnStateUnknownExpired {
				return nil, &OutcomeUnknown{txnID, lost}
			}
		case ctx.Err() != nil:
			return nil, &OutcomeUnknown{txnID, gaveUp(ctx, lost)}
		case errors.As(err, &unavailable):
			lost = err
		default:
			// Another request would fail the same way, and the commit may have arrived.
			return nil, &OutcomeUnknown{txnID, err}
		}
		if sleep(ctx, c.options.Retry.step(failed)) != nil {
			return nil, &OutcomeUnknown{txnID, gaveUp(ctx, lost)}
		}
	}
	return nil, &OutcomeUnknown{txnID, lost}
}

// recorded records a commit in the session.
func (c *Client) recorded(verdict Verdict, err error) (Verdict, error) {
	if committed, ok := verdict.(*Committed); ok && err == nil {
		c.session.record(committed)
	}
	return verdict, err
}

// ownEpoch returns the epoch of this client's latest commit to a store, if reads have to be compared with it: with
// several endpoints, the one that serves the read may not have applied it yet.
func (c *Client) ownEpoch(store string) Epoch {
	if len(c.wires) == 1 || c.options.IgnoreOwnWrites {
		return 0
	}
	return c.session.epochOf(store)
}

func rowOf(row *wire.Row) (Row, error) {
	key, ok, err := keyOf(row.Key, row.KeyB64)
	if err == nil && !ok {
		err = misbehaved("a row without a key")
	}
	fields := reader{err: err}
	version := Version(fields.number(row.Version))
	return Row{Key: key, Value: valueOf(row.Value, row.ValueB64), Version: version}, fields.err
}

// checkLimit returns an error if the limit of a range is invalid.
func checkLimit(limit int) error {
	if limit < 0 || limit > rangeLimitMax {
		return misuse("the limit of a range must be from 1 to %d, or 0 for %d, not %d", rangeLimitMax, rangeLimitDefault, limit)
	}
	return nil
}

// limitOf converts a limit to its wire form. A limit that does not fit is clamped, not truncated, so that the service
// refuses it.
func limitOf(limit int) *int32 {
	clamped := int32(min(max(limit, math.MinInt32), math.MaxInt32))
	return &clamped
}

// requestWaitMax is the longest time that the service waits in a request.
const requestWaitMax = time.Minute

func milliseconds(wait time.Duration) int32 {
	return int32(min(max(wait, 0), requestWaitMax) / time.Millisecond)
}
