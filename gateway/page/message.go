package page

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// retryAfter is the Retry-After of temporary errors, in seconds.
const retryAfter = 5

// messageView is a page with nothing but a message.
type messageView struct {
	Status  int
	Heading string
	Text    []string
	// Address and Version are the requested provider and version; they may be "".
	Address, Version string
	ToProvider       bool // links to the provider's page
	SignIn           bool
	RequestID        string
	Again            int // seconds until a retry may succeed
}

// notFound answers requests for unknown paths.
func (p *page) notFound(w http.ResponseWriter, r *http.Request) {
	p.say(w, r, messageView{
		Status: http.StatusNotFound, Heading: "There is no such page",
		Text: []string{"To find a provider, enter its address, HOSTNAME/NAMESPACE/TYPE, in the search box above."},
	})
}

// noAddress answers requests with an invalid provider address.
func (p *page) noAddress(w http.ResponseWriter, r *http.Request) {
	p.say(w, r, messageView{
		Status: http.StatusNotFound, Heading: "This is not a provider address",
		Text: []string{"An address is HOSTNAME/NAMESPACE/TYPE, such as registry.opentofu.org/hashicorp/null."},
	})
}

// say answers with a message.
func (p *page) say(w http.ResponseWriter, r *http.Request, m messageView) {
	m.RequestID = w.Header().Get("X-Request-Id")
	p.render(w, r, m.Status, "message", layout{Title: m.Heading, View: m})
}

// refuse answers clients without a valid token.
func (p *page) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p.Access.Refused(err)
	if errors.Is(err, access.ErrUnavailable) {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		p.say(w, r, messageView{
			Status: http.StatusServiceUnavailable, Heading: "Your token cannot be checked now", Again: retryAfter,
			Text: []string{"The issuer of the token cannot be reached; the gateway’s log says why. The token itself may be valid."},
		})
		return
	}
	w.Header().Set("WWW-Authenticate", access.Challenge)
	p.say(w, r, messageView{
		Status: http.StatusUnauthorized, Heading: "A token is required", SignIn: true,
		Text: []string{
			"This gateway shows providers only to users with a token. Sign in with the token as the password and any user name.",
			"Ask the gateway’s operator for a token.",
		},
	})
}

// forbid answers a client that may not read a provider, whether or not the provider exists.
func (p *page) forbid(w http.ResponseWriter, r *http.Request, who *access.Subject, a provider.Address) {
	p.Access.Refused(nil)
	p.say(w, r, messageView{
		Status: http.StatusForbidden, Heading: "Not allowed", Address: a.String(), SignIn: true,
		Text: []string{
			fmt.Sprintf("You are signed in with %s, which may not read this provider, whether or not it exists.", who.Name()),
			"The gateway’s operator decides which providers a token may read.",
		},
	})
}

// fail answers if a provider, or a version of it if version is not "", cannot be shown. Only the log gets the
// reason, as in the protocols.
func (p *page) fail(w http.ResponseWriter, r *http.Request, a provider.Address, version string, err error) {
	m := messageView{Status: gateway.StatusOf(err), Address: a.String(), Version: version, ToProvider: version != ""}
	switch m.Status {
	case http.StatusNotFound:
		m.describeAbsence(err, p.Pulls(a), a)
	case http.StatusUnavailableForLegalReasons:
		m.Heading = "This version is denied"
		m.Text = []string{"A rule of this gateway denies it. Clients that request it get an error, and do not look elsewhere."}
	default:
		m.describeTrouble(err)
		w.Header().Set("Retry-After", strconv.Itoa(gateway.RetryAfterOf(err)))
		w.Header().Set("Cache-Control", "no-store")
		if p.Access != nil {
			w.Header().Set("Cache-Control", access.Private)
		}
		level := slog.LevelError
		if r.Context().Err() != nil || errors.Is(err, verify.ErrRefused) {
			level = slog.LevelDebug // the client has left, or the reason was logged before
		}
		p.Log.Log(r.Context(), level, "cannot show", "path", r.URL.Path, "status", m.Status, "err", hint.Brief(err))
	}
	p.say(w, r, m)
}

// describeAbsence explains why something does not exist. pulls is set if its origin was asked, too.
func (m *messageView) describeAbsence(err error, pulls bool, a provider.Address) {
	switch {
	case errors.Is(err, catalog.ErrNotServed):
		m.Heading, m.ToProvider = "Not served here", false
		m.Text = []string{"This gateway has no repository for such providers. Clients that request one try their next installation method."}
	case pulls && m.Version != "":
		m.Heading = "There is no such version"
		m.Text = []string{
			"The registry does not have it, and its origin, " + displayHost(a.Hostname()) + ", does not offer it to this gateway.",
			"A rule of this gateway may exclude the version, or hold it back for some time after its release.",
		}
	case pulls:
		m.Heading = "There is no such provider"
		m.Text = []string{
			"The registry has no version of it, and its origin, " + displayHost(a.Hostname()) + ", offers none to this gateway. Check the address, including the host name: registry.opentofu.org and registry.terraform.io are different registries.",
		}
	case m.Version != "":
		m.Heading = "There is no such version"
		m.Text = []string{"The registry says that it does not have it."}
	default:
		m.Heading = "There is no such provider"
		m.Text = []string{
			"The registry says that it has no version of it. Check the address, including the host name: registry.opentofu.org and registry.terraform.io are different registries.",
			"To add it, run: ocibridge push " + m.Address,
		}
	}
}

func (m *messageView) describeTrouble(err error) {
	if isInvalid(err) {
		m.Heading = "This version cannot be served"
		m.Text = []string{"The registry’s content for this version is invalid: it is malformed, belongs to another provider or version, or its evidence does not vouch for it. The gateway’s log gives the reason."}
		return
	}
	if trust.Refused(err) {
		m.Heading = "This version is refused"
		m.Text = []string{"This gateway’s configuration does not accept the origin’s release: a checksum or a signature is missing or wrong, or it was signed by a key that is not pinned. The gateway neither serves nor stores it. The gateway’s log gives the reason."}
		return
	}
	m.Heading, m.Again = "The registry cannot answer now", gateway.RetryAfterOf(err)
	if errors.Is(err, catalog.ErrSource) {
		m.Heading = "The origin cannot answer now"
		m.Text = []string{
			"The gateway still serves everything that is in its registry. This provider is not, and the gateway cannot know whether it exists until its origin answers.",
			"Clients also get an error, and do not look elsewhere. The gateway’s log gives the reason.",
		}
		return
	}
	m.Text = []string{
		"This does not mean that the provider does not exist: the gateway cannot know until its registry answers.",
		"Clients also get an error, and do not look elsewhere. The gateway’s log gives the reason.",
	}
	if m.Status == http.StatusGatewayTimeout {
		m.Heading = "The registry takes too long to answer"
	}
}

// isInvalid reports whether an error means that the stored version is invalid, or that its evidence does not
// prove its origin.
func isInvalid(err error) bool {
	return artifact.IsInvalid(err) || errors.Is(err, verify.ErrRefused)
}
