package outgoing

import (
	"io"
	"net/http"
)

// OnClose calls done whenever the body of an answer is closed. A body may be closed twice.
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
