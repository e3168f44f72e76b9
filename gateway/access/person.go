package access

import (
	"context"
	"net/http"
)

// Challenge is the WWW-Authenticate header that makes a browser prompt for a user name and a password. The
// password must be a token. The user name does not matter.
const Challenge = `Basic realm="ocibridge", charset="UTF-8"`

// everybody is the client of every request if access is not controlled. It may read everything.
var everybody = &Client{grants: []*grant{{}}}

// Person returns the client of a request for a page. The token may also be a password with any user name,
// because browsers can send passwords. A nil control returns a client that may read everything. If the
// request has no valid token, Person fails with [ErrUnknown], and the caller answers with a [Challenge]. If
// the token's issuer cannot be reached, Person fails with [ErrUnavailable]. Callers count refused requests
// with [Control.Refused].
func (c *Control) Person(r *http.Request) (*Client, error) {
	if c == nil {
		return everybody, nil
	}
	s, err := c.authenticate(r, true)
	if err != nil {
		return nil, err
	}
	stateOf(r.Context()).setClient(s)
	return s, nil
}

// Refused counts a refused request. err is the error of [Control.Person], or nil if the client is known but
// may not read the provider or module.
func (c *Control) Refused(err error) {
	if err == nil {
		c.n.Forbidden.Add(1)
		return
	}
	c.count(err)
}

// Name returns the client's name, such as "token ci". The name is "" if access is not controlled.
func (c *Client) Name() string { return c.name }

// NameOf returns the name of a request's client. The name is "" before authentication, and if access is not
// controlled.
func NameOf(ctx context.Context) string { return stateOf(ctx).name }
