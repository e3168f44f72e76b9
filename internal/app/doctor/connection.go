package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"time"
)

// firstConn records the first connection of a request. Later connections can be connections to a token server
// instead of the registry.
type firstConn struct {
	seen bool
	tls  *tls.ConnectionState // nil for plain HTTP
}

func (f *firstConn) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if conn, ok := info.Conn.(*tls.Conn); ok && !f.seen {
			state := conn.ConnectionState()
			f.tls = &state
		}
		f.seen = true
	}})
}

func (r *Report) tls(state *tls.ConnectionState, loopback bool, now time.Time) {
	switch {
	case state == nil && loopback:
		r.ok("TLS", "plain HTTP, on this machine")
		return
	case state == nil:
		r.warn("TLS", "set TLS up there, and leave out plain HTTP", "plain HTTP: credentials and packages cross the network unencrypted")
		return
	case len(state.PeerCertificates) == 0:
		r.warn("TLS", "check the server's configuration", "%s without a certificate", tls.VersionName(state.Version))
		return
	}
	leaf := state.PeerCertificates[0]
	left := leaf.NotAfter.Sub(now)
	detail := fmt.Sprintf("%s, certificate for %s by %s, valid until %s", tls.VersionName(state.Version), leaf.Subject.CommonName, leaf.Issuer.CommonName, leaf.NotAfter.Format(time.DateOnly))
	switch {
	case len(state.VerifiedChains) == 0:
		r.warn("TLS", "name the authority's file in ca_file, in place of insecure_skip_verify", "%s; not verified", detail)
	case left < expiryWarning:
		r.warn("TLS", "renew the certificate", "%s, in %s", detail, count(int(left.Hours()/24), "day"))
	default:
		r.ok("TLS", "%s, a chain of %d", detail, len(state.VerifiedChains[0]))
	}
}

func (r *Report) clock(date string, now time.Time) {
	there, err := http.ParseTime(date)
	if err != nil {
		r.warn("clock", "nothing to do, unless tokens are refused: then compare the clocks", "the server does not say what time it has")
		return
	}
	skew := now.Sub(there).Abs().Round(time.Second)
	const help = "set the clock, on this machine or there: tokens and signatures depend on it"
	switch {
	case skew >= largeSkew:
		r.fail("clock", fmt.Errorf("the clocks differ by %s", skew), help)
	case skew >= smallSkew:
		r.warn("clock", help, "the clocks differ by %s", skew)
	default:
		r.ok("clock", "the clocks agree to %s", max(skew, time.Second))
	}
}

// server adds the checks of the certificate and the clock of a server that speaks TLS, from its first response. It adds
// no checks if resp is nil, or if the report has these checks already.
func (r *Report) server(resp *http.Response) {
	if resp == nil || r.has("TLS") {
		return
	}
	r.tls(resp.TLS, false, time.Now())
	r.clock(resp.Header.Get("Date"), time.Now())
}
