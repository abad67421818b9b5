package tribunal

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// begunWith is the reply to a Begin that reads rows.
func begunWith(rows string) (int, string) {
	status, body := begunReply(0, 7)
	return status, strings.TrimSuffix(body, "}") + `,"rows":[` + rows + "]}"
}

func TestRowsReadAtBeginNeedNoFurtherRequestAndCountAsReadOnceGetReturnsThem(t *testing.T) {
	service := newScripted(t, func(string, int) (int, string) {
		return begunWith(`{"store":"kv","key":"a","value":null,"version":"5"},{"store":"kv","key":"b"},{"store":"kv","key":"c","value":3,"version":"6"}`)
	}, httptest.NewServer)
	options := BeginOptions{Stores: []string{"kv"}, Read: map[string][]string{"kv": {"a", "b", "c"}}}
	txn, err := service.client(t, Options{}).Begin(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if !txn.Blind() {
		t.Error("rows that Get has not returned count as read")
	}
	for range 2 {
		a, errA := txn.Get(t.Context(), "kv", "a")
		b, errB := txn.Get(t.Context(), "kv", "b")
		if errA != nil || errB != nil || a == nil || string(a.Value) != "null" || a.Version != 5 || b != nil {
			t.Fatal(a, errA, b, errB)
		}
	}
	if service.requests() != 1 || len(service.arrived["begin"][0].Read) != 3 {
		t.Errorf("%d requests, %+v", service.requests(), service.arrived)
	}
	prepared, err := txn.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	reads := *prepared.Request.Reads
	if len(reads) != 2 || *reads[0].Key != "a" || *reads[0].Version != "5" || *reads[1].Key != "b" || reads[1].Version != nil {
		t.Errorf("%+v", reads)
	}
}

func TestGetManySendsOneRequestForTheRowsNotReadYet(t *testing.T) {
	service := newScripted(t, func(kind string, _ int) (int, string) {
		if kind == "begin" {
			return begunWith(`{"store":"kv","key":"ahead","value":1,"version":"5"}`)
		}
		return 200, `{"applied":"9","rows":[{"store":"kv","key":"seen","value":2,"version":"6"},{"store":"kv","key":"new"},
			{"store":"kv","key":"sum","value":40,"version":"8"}]}`
	}, httptest.NewServer)
	options := BeginOptions{Read: map[string][]string{"kv": {"ahead"}}}
	txn, err := service.client(t, Options{}).Begin(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	txn.Observe("kv", "seen", 4)
	txn.Put("kv", "own", "mine")
	txn.Add("kv", "sum", 2)
	keys := []string{"ahead", "seen", "own", "new", "sum", "new"}
	for range 2 {
		rows, err := txn.GetMany(t.Context(), "kv", keys)
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, row := range rows {
			if row == nil {
				values = append(values, "-")
			} else {
				values = append(values, string(row.Value))
			}
		}
		if found := strings.Join(values, " "); found != `1 2 "mine" - 42 -` {
			t.Error(found)
		}
	}
	var asked []string
	for _, row := range service.arrived["rows"][0].Read {
		asked = append(asked, *row.Key)
	}
	if service.requests() != 2 || !slices.Equal(asked, []string{"seen", "new", "sum"}) {
		t.Errorf("%d requests, %q", service.requests(), asked)
	}
	prepared, err := txn.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, read := range *prepared.Request.Reads {
		versions[*read.Key] = given(read.Version)
	}
	// The first observed version counts, so that the commit detects the change.
	if fmt.Sprint(versions) != "map[ahead:5 new: seen:4 sum:8]" {
		t.Error(versions)
	}
}

func TestWhatABeginOrAReadMustIncludeIsSent(t *testing.T) {
	service := newScripted(t, func(kind string, _ int) (int, string) {
		if kind == "begin" {
			return begunReply(0, 7)
		}
		return 200, `{"applied":"9","rows":[{"store":"kv","key":"a"}],"ranges":[{"store":"kv","rows":[],"more":false}]}`
	}, httptest.NewServer)
	client, ctx, rows := service.client(t, Options{}), t.Context(), []RowRead{{Key: "a"}}
	options := ReadOptions{Consistency: Fresh, Wait: 80 * time.Millisecond}
	_, begun := client.Begin(ctx, BeginOptions{Consistency: Fresh, Wait: 70 * time.Millisecond})
	_, fresh := client.ReadRowsWith(ctx, "kv", rows, options)
	_, later := client.ReadRangesWith(ctx, "kv", []KeyRange{{Limit: 1}}, ReadOptions{Session: "v1-7"})
	_, plain := client.ReadRows(ctx, "kv", rows)
	if err := errors.Join(begun, fresh, later, plain); err != nil {
		t.Fatal(err)
	}
	asked := ""
	for _, request := range append(service.arrived["begin"], service.arrived["rows"]...) {
		asked += fmt.Sprintf("%s,%d,%s ", request.Consistency, request.WaitMs, request.Session)
	}
	if asked != "fresh,70, fresh,80, ,0,v1-7 ,0, " {
		t.Error(asked)
	}
}

func TestAReplyWithTheWrongNumberOfRowsIsRefused(t *testing.T) {
	service := newScripted(t, func(kind string, _ int) (int, string) {
		if kind == "begin" {
			return begunWith("")
		}
		return 200, `{"applied":"9","rows":[]}`
	}, httptest.NewServer)
	client := service.client(t, Options{})
	var misbehaved *ServerMisbehaved
	_, err := client.Begin(t.Context(), BeginOptions{Read: map[string][]string{"kv": {"a"}}})
	if !errors.As(err, &misbehaved) {
		t.Error(err)
	}
	_, err = client.ReadRows(t.Context(), "kv", []RowRead{{Key: "a"}})
	if !errors.As(err, &misbehaved) {
		t.Error(err)
	}
}
