package outgoing

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestOnClose(t *testing.T) {
	body := &closeCounter{Reader: strings.NewReader("x")}
	resp, calls := &http.Response{Body: body}, 0
	OnClose(resp, func() {
		if calls++; body.closed != calls {
			t.Errorf("call %d after %d closes", calls, body.closed)
		}
	})
	if data, err := io.ReadAll(resp.Body); string(data) != "x" || err != nil || calls != 0 {
		t.Errorf("read %q, %v; %d calls", data, err, calls)
	}
	for want := 1; want <= 2; want++ {
		if err := resp.Body.Close(); err != io.ErrClosedPipe || calls != want {
			t.Errorf("close %d: %v, %d calls", want, err, calls)
		}
	}
}

// closeCounter is a body that counts the calls of Close. Each call returns an error.
type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error {
	c.closed++
	return io.ErrClosedPipe
}
