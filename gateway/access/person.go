package access

import (
	"context"
	"net/http"
)

// Challenge is the WWW-Authenticate header by which a browser asks for a token: as
// the password of any user.
const Challenge = `Basic realm="ocibridge", charset="UTF-8"`

// Private is what is said of every answer that depends on who asks.
const Private = private

// everybody is who asks where there is no access control.
var everybody = &Subject{grants: []*grant{{}}}

// Person returns who asks for a page: by a bearer token or, since that is what
// browsers have, by one as the password of any user. Without a control it is
// everybody. It fails with [ErrUnknown], to be answered with a [Challenge], or with
// [ErrUnavailable]; whoever turns somebody away for that says so by [Control.Refused].
func (c *Control) Person(r *http.Request) (*Subject, error) {
	if c == nil {
		return everybody, nil
	}
	s, err := c.authenticate(r, true)
	if err != nil {
		return nil, err
	}
	known := stateOf(r.Context())
	known.subject, known.name = s, s.name
	return s, nil
}

// Refused counts a request that is refused: for an error of [Control.Person], or, if
// err is nil, because the subject may not have what it asks for.
func (c *Control) Refused(err error) {
	if err == nil {
		c.n.Forbidden.Add(1)
		return
	}
	c.count(err)
}

// Name says who it is, such as "token ci"; "" for everybody.
func (s *Subject) Name() string { return s.name }

// NameOf is the name of who was found to make a request; "" for nobody yet, and for
// everybody.
func NameOf(ctx context.Context) string { return stateOf(ctx).name }
