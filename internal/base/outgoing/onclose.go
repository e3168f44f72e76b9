package outgoing

import (
	"io"
	"net/http"
)

// OnClose makes each Close of the response's body call done. done must tolerate a second
// call, because a body may be closed twice.
func OnClose(resp *http.Response, done func()) { resp.Body = &closer{resp.Body, done} }

type closer struct {
	io.ReadCloser
	done func()
}

// Close implements [io.Closer].
func (c *closer) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}
