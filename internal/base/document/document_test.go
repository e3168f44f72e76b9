package document

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

var small = Limits{Bytes: 1000, Values: 10, Elements: 5}

func TestLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		doc  string
		says string // the error; "" means that the document is within the limits
	}{
		"empty":                       {``, ""},
		"five elements":               {`[1,2,3,4,5]`, ""},
		"six elements":                {`[1,2,3,4,5,6]`, "more than 5 elements"},
		"six empty objects":           {`[{},{},{},{},{},{}]`, "more than 5 elements"},
		"six members":                 {`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`, "more than 5 elements"},
		"many short arrays":           {`[[1,2],[1,2],[1,2],[1,2]]`, "more than 10 values"},
		"elements of siblings":        {`[[1,2,3],[1,2,3]]`, ""},
		"elements after an array":     {`[[],[],1,2,3,4]`, "more than 5 elements"},
		"brackets and commas in text": {`["[[[[,,,,,,,,,,,,{{{{"]`, ""},
		"escaped quotation mark":      {`["\",,,,,,,,,,,,\\",1]`, ""},
		"escaped backslash":           {`["\\",1,2,3,4,5]`, "more than 5 elements"},
		"bytes":                       {strings.Repeat(" ", 1001), "more than 1000 bytes"},
		"closed too often":            {`]]]]]]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := small.Check([]byte(tc.doc))
			if tc.says == "" && err != nil || tc.says != "" && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("error %v, want %q", err, tc.says)
			}
			var out any
			if err := small.Unmarshal([]byte(tc.doc), &out); tc.says != "" && (!errors.Is(err, ErrTooLarge) || out != nil) {
				t.Errorf("Unmarshal: %v, %v", out, err)
			}
		})
	}
	var out any
	if err := small.Unmarshal([]byte("[\"\xff\"]"), &out); !errors.Is(err, errNotUTF8) || out != nil {
		t.Errorf("not UTF-8: %v, %v", out, err)
	}
	var number struct{ N int8 }
	long := Limits{Bytes: 1 << 20, Values: 10, Elements: 10}
	if err := long.Unmarshal([]byte(`{"N":`+strings.Repeat("1", 1<<19)+`}`), &number); err == nil || len(err.Error()) > 4<<10 {
		t.Errorf("a long number: %.100v", err)
	}
	deep := Limits{Bytes: 1 << 20, Values: 1 << 20, Elements: 1 << 20}
	if err := deep.Check([]byte(strings.Repeat("[", maxDepth-1))); err != nil {
		t.Errorf("%d deep: %v", maxDepth-1, err)
	}
	if err := deep.Check([]byte(strings.Repeat("[", maxDepth))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d deep: %v", maxDepth, err)
	}
}

// TestErrorsOfNumbers shows that the error for a number that is too large for its Go
// type is short, although encoding/json quotes the number.
func TestErrorsOfNumbers(t *testing.T) {
	limits := Limits{Bytes: 4 << 20, Values: 10, Elements: 10}
	for name, n := range map[string]int{"long": 4_000_000, "short": 30} {
		data := []byte(strings.Repeat("9", n))
		var out int
		d, err := Read(bytes.NewReader(data), limits)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for what, err := range map[string]error{"Unmarshal": limits.Unmarshal(data, &out), "Decode": d.Decode(t.Context(), &out)} {
			if err == nil || !strings.HasPrefix(err.Error(), "json: cannot unmarshal number 999") || len(err.Error()) > 300 {
				t.Errorf("%s, %s: an error of %d bytes: %.100v", name, what, len(fmt.Sprint(err)), err)
			}
		}
	}
}

// FuzzCount shows that the count is an upper bound for the number of values that
// encoding/json decodes.
func FuzzCount(f *testing.F) {
	for _, s := range []string{`{"versions":[{},{"a":[1,2,null]},"\"[,"]}`, `[[],{},"",0]`, `"\\"`, `1`, `{"a":{"b":{"c":[[[]]]}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		counted, err := Limits{Bytes: 1 << 20, Values: 1 << 20, Elements: 1 << 20}.count(data)
		var out any
		if err != nil || json.Unmarshal(data, &out) != nil {
			return
		}
		// The outermost value is not counted, because no bracket or comma is before it.
		// If an object contains a name twice, encoding/json decodes fewer values than
		// it has.
		if decoded := valuesOf(out) - 1; decoded > counted || counted > strings.Count(string(data), ",")+strings.Count(string(data), "{")+strings.Count(string(data), "[") {
			t.Errorf("counted %d values, decoded %d", counted, decoded)
		}
	})
}

func valuesOf(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += valuesOf(e)
		}
	case map[string]any:
		for _, e := range v {
			n += valuesOf(e)
		}
	}
	return n
}

func TestReadAndDecode(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"whole":        strings.NewReader(`[1,2,3]`),
		"in bytes":     iotest.OneByteReader(strings.NewReader(`[1,2,3]`)),
		"end with it":  iotest.DataErrReader(strings.NewReader(`[1,2,3]`)),
		"of full size": io.MultiReader(strings.NewReader(`[1,2,3]`), strings.NewReader(strings.Repeat(" ", 1000-7))),
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Read(r, small)
			if err != nil {
				t.Fatal(err)
			}
			var out []int
			if err := d.Decode(t.Context(), &out); err != nil || len(out) != 3 {
				t.Errorf("%v, %v", out, err)
			}
			d.Close()
			d.Close()
			nothingHeld(t)
		})
	}
}

func TestReadRefused(t *testing.T) {
	broken := errors.New("broken off")
	for name, tc := range map[string]struct {
		r  io.Reader
		is error
	}{
		"one byte too many": {strings.NewReader(strings.Repeat(" ", 1001)), ErrTooLarge},
		"without end":       {endless{}, ErrTooLarge},
		"broken off":        {io.MultiReader(strings.NewReader("["), iotest.ErrReader(broken)), broken},
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := Read(tc.r, small); d != nil || !errors.Is(err, tc.is) {
				t.Errorf("%v, %v", d, err)
			}
			nothingHeld(t)
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// nothingHeld fails the test unless both budgets are unused.
func nothingHeld(t *testing.T) {
	t.Helper()
	if !reading.TryAcquire(readBudget) {
		t.Error("a part of the budget for reading is held")
	} else {
		reading.Release(readBudget)
	}
	if !decoding.TryAcquire(decodeBudget) {
		t.Error("a part of the budget for decoding is held")
	} else {
		decoding.Release(decodeBudget)
	}
}

// TestManyDocumentsAtOnce shows that Read returns ErrBusy if the open documents use up
// the budget. A small document can still be read.
func TestManyDocumentsAtOnce(t *testing.T) {
	testkit.LeaveToAll(t)
	limits := Limits{Bytes: 32<<20 - 1, Values: 1, Elements: 1}
	body := make([]byte, limits.Bytes)
	var open []*Document
	defer func() {
		for _, d := range open {
			d.Close()
		}
		nothingHeld(t)
	}()
	for i := range readBudget / (32 << 20) {
		d, err := Read(bytes.NewReader(body), limits)
		if err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
		open = append(open, d)
	}
	if _, err := Read(bytes.NewReader(body), limits); !errors.Is(err, ErrBusy) {
		t.Fatalf("with an exhausted budget: %v", err)
	}
	d, err := Read(bytes.NewReader(body[:freeBytes-1]), limits)
	if err != nil {
		t.Fatalf("a small document, which needs no room: %v", err)
	}
	d.Close()
	open[0].Close()
	if d, err = Read(bytes.NewReader(body), limits); err != nil {
		t.Fatalf("after one document was closed: %v", err)
	}
	open = append(open, d)
}

// TestDecodingWaits shows that Decode waits while the decode budget is used up.
func TestDecodingWaits(t *testing.T) {
	d, err := Read(strings.NewReader(`[1]`), small)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := decoding.Acquire(t.Context(), decodeBudget); err != nil {
		t.Fatal(err)
	}
	var out []int
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Decode(ctx, &out); !errors.Is(err, context.Canceled) || out != nil {
		t.Errorf("without room, and with a cancelled context: %v, %v", out, err)
	}
	decoding.Release(decodeBudget)
	if err := d.Decode(t.Context(), &out); err != nil || len(out) != 1 {
		t.Errorf("with room: %v, %v", out, err)
	}
}
