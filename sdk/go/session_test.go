package tribunal

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestAnOwnTokenThatTheServiceDoesNotKnowIsForgotten(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch {
		case kind != "begin":
			return committedReply(9000)
		case before == 0, before == 3:
			return 422, troubleText(422, "session_unknown")
		}
		return begunReply(before, 7)
	}, httptest.NewServer)
	client := service.client(t, Options{})
	checkCommitOf(t, client)
	// Refused, resent without the token, and sent without it from then on.
	checkSession(t, service, client, "")
	checkSession(t, service, client, "")
	if first := service.arrived["begin"][0].Session; first != "token-9000" || len(service.arrived["begin"]) != 3 {
		t.Error(service.arrived["begin"])
	}
	// A token that the caller named is the caller's to omit.
	_, err := client.Begin(t.Context(), BeginOptions{Session: "mine"})
	var mistake *ClientMistake
	if !errors.As(err, &mistake) || mistake.Code() != "session_unknown" || len(service.arrived["begin"]) != 4 {
		t.Error(err)
	}
}

// checkCommitOf commits, whatever the id in the reply.
func checkCommitOf(t *testing.T, client *Client) {
	t.Helper()
	verdict, err := client.Commit(t.Context(), preparedOf(t, client))
	if _, ok := verdict.(*Committed); !ok {
		t.Fatal(verdict, err)
	}
}

func TestForgettingATokenForgetsThoseOfTheSameLogAfterIt(t *testing.T) {
	known := session{}
	record := func(epoch Epoch, store, token string) {
		known.record(&Committed{Epoch: epoch, Session: token, LSN: map[string]LSN{store: 1}})
	}
	record(7, "a", "token-7")
	record(8, "b", "token-8")
	record(9, "c", "token-9")
	known.forget("other")
	if token := known.token(nil); token != "token-9" {
		t.Error(token)
	}
	known.forget("token-8")
	if token := known.token(nil); token != "token-7" {
		t.Error(token)
	}
}

func TestReadsGoOnAfterTheLogHasBeenReplaced(t *testing.T) {
	first := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if before == 0 {
			return works(kind, ids, before)
		}
		return 503, troubleText(503, "stopping")
	})
	// The commit belonged to epoch 9.
	second := startEndpoint(t, func(_ string, _ []string, before int) (int, string) {
		if before == 1 || before == 4 {
			return 422, troubleText(422, "session_unknown")
		}
		return 200, `{"applied":"5","rows":[{"store":"kv"}],"ranges":[{"store":"kv","rows":[],"more":false}]}`
	})
	client := clientOf(t, Options{}, first.url, second.url)
	checkCommits(t, client)
	reads, err := client.ReadRows(t.Context(), "kv", []RowRead{{Key: "n"}})
	if err != nil || reads.Applied != 5 {
		t.Fatal(reads, err)
	}
	if asked := second.asked(); len(asked) != 3 || !strings.Contains(asked[1].body, `"session":"s"`) || strings.Contains(asked[2].body, "session") {
		t.Error(asked)
	}
	client.session.record(&Committed{Epoch: 9, Session: "s", LSN: map[string]LSN{"kv": 1}})
	if page, err := client.Rows(t.Context(), "kv", KeyRange{}); err != nil || page.Applied != 5 {
		t.Error(page, err)
	}
}

// The service waits 5 s by default, which is not a failure of its endpoint.
func TestAnEndpointMayWaitForWhatARequestMustInclude(t *testing.T) {
	slow := func(kind string, ids []string, before int) (int, string) {
		switch kind {
		case "commit":
			return works(kind, ids, before)
		case "begin":
			time.Sleep(3 * time.Second)
			return works(kind, ids, before)
		}
		time.Sleep(3 * time.Second)
		return 200, `{"applied":"9","rows":[{"store":"kv"}],"ranges":[{"store":"kv","rows":[],"more":false}]}`
	}
	first, second := startEndpoint(t, slow), startEndpoint(t, works)
	client := clientOf(t, Options{EndpointTimeout: 2 * time.Second}, first.url, second.url)
	checkCommits(t, client)
	for name, ask := range map[string]func() error{
		"own commit": func() error {
			_, err := client.Begin(t.Context(), BeginOptions{Stores: []string{"kv"}})
			return err
		},
		"fresh": func() error {
			_, err := client.ReadRowsWith(t.Context(), "kv", []RowRead{{Key: "n"}}, ReadOptions{Consistency: Fresh})
			return err
		},
		"session": func() error {
			_, err := client.ReadRangesWith(t.Context(), "kv", []KeyRange{{}}, ReadOptions{Session: "s"})
			return err
		},
	} {
		if err := ask(); err != nil || len(second.asked()) != 0 || client.Endpoint() != first.url {
			t.Error(name, err, second.asked())
		}
	}
}
