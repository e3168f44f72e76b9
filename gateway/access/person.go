package access

import (
	"context"
	"net/http"
)

// Challenge is the WWW-Authenticate header that makes a browser prompt for a token, as the password of any
// user.
const Challenge = `Basic realm="ocibridge", charset="UTF-8"`

// everybody is the subject if there is no access control.
var everybody = &Subject{grants: []*grant{{}}}

// Person returns the subject of a request for a page: by a bearer token or, because browsers support that, by a
// token as the password of any user. Without a control, it returns a subject that may read everything. It fails
// with [ErrUnknown], to be answered with a [Challenge], or with [ErrUnavailable]; callers count the refusal
// with [Control.Refused].
func (c *Control) Person(r *http.Request) (*Subject, error) {
	if c == nil {
		return everybody, nil
	}
	s, err := c.authenticate(r, true)
	if err != nil {
		return nil, err
	}
	stateOf(r.Context()).setSubject(s)
	return s, nil
}

// Refused counts a refused request: for an error of [Control.Person] or, if err is nil, because the subject has
// no access.
func (c *Control) Refused(err error) {
	if err == nil {
		c.n.Forbidden.Add(1)
		return
	}
	c.count(err)
}

// Name returns the subject's name, such as "token ci"; it is "" without access control.
func (s *Subject) Name() string { return s.name }

// NameOf returns the name of a request's subject; it is "" before authentication, and without access control.
func NameOf(ctx context.Context) string { return stateOf(ctx).name }
