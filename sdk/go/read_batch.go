package tribunal

import (
	"net/http"
	"slices"
	"time"

	"tribunal.internal/client/wire"
)

// rowBytes is what a row counts for in addition to its key, so that the byte limit also bounds the number of rows.
const rowBytes = 128

// readBounds are the bounds of batched reads: 512 callers and 10,000 rows.
var readBounds = bounds{inFlight: 2, headStart: headStart, items: 512, bytes: 10_000 * rowBytes}

// bytesAlone is the limit above which a read is sent alone: other reads would wait for the response, or be refused with
// it.
const bytesAlone = 1_000 * rowBytes

func bytesOf(rows []wire.RowRead) int {
	bytes := 0
	for _, row := range rows {
		bytes += rowBytes + len(given(row.Key)) + len(given(row.KeyB64))
	}
	return bytes
}

// shared is the result of one caller of a shared request.
type shared[T any] struct {
	// reply is the reply that a request of its own would have received.
	reply reply[T]
	// refused is set if the request was refused because of its content: each caller has to send its own.
	refused bool
}

// latest returns the later one of two times at which callers give up.
func latest(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

// parts splits the reply to a request of several callers into one per caller.
func parts[T any](answer reply[T], count int, apart func(*T) ([]T, error)) []shared[T] {
	each := make([]shared[T], count)
	if answer.data == nil {
		refusals := []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}
		for at := range each {
			each[at] = shared[T]{answer, count > 1 && slices.Contains(refusals, answer.status)}
		}
		return each
	}
	data, err := apart(answer.data)
	for at := range each {
		if err != nil {
			each[at].reply = reply[T]{err: err, garbled: true}
		} else {
			each[at].reply = reply[T]{data: &data[at], header: answer.header}
		}
	}
	return each
}

// union has the rows of several callers, each row once.
type union struct {
	rows []wire.RowRead
	// places has, for each caller, the places of its rows in rows.
	places [][]int
}

// unite joins the rows of callers. A row that two callers know in different versions is requested twice.
func unite(callers [][]wire.RowRead) union {
	joined := union{places: make([][]int, len(callers))}
	known := map[[4]string]int{}
	for caller, rows := range callers {
		for _, row := range rows {
			name := [4]string{given(row.Store), given(row.Key), given(row.KeyB64), given(row.Version)}
			place, asked := known[name]
			if !asked {
				place = len(joined.rows)
				known[name] = place
				joined.rows = append(joined.rows, row)
			}
			joined.places[caller] = append(joined.places[caller], place)
		}
	}
	return joined
}

// apart returns each caller's rows. No two callers share the bytes of a value, which their callers may change.
func (u union) apart(found []wire.ReadRow) ([][]wire.ReadRow, error) {
	if len(found) != len(u.rows) {
		return nil, misbehaved("%d rows returned where %d were requested", len(found), len(u.rows))
	}
	each, taken := make([][]wire.ReadRow, len(u.places)), make([]bool, len(found))
	for caller, places := range u.places {
		each[caller] = make([]wire.ReadRow, len(places))
		for at, place := range places {
			row := found[place]
			if taken[place] {
				row.Value = slices.Clone(row.Value)
			}
			taken[place] = true
			each[caller][at] = row
		}
	}
	return each, nil
}
