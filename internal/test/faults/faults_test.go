package faults_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/faultproxy"
	"github.com/ocibridge/ocibridge/internal/test/testkit/memnet"
)

// fault is one kind of failure of a server or of the network in front of it. Refused connections and unknown
// hosts are failures of the network. All other faults apply to requests.
type fault struct {
	name  string
	fault func() faultproxy.Fault
	dial  error // if not nil, dials fail with this error, and fault is unused
}

// harmless reports whether a client that follows the protocols does not notice the fault.
func (f fault) harmless() bool { return f.name == "slow drip" || f.name == "clock a day behind" }

// ofNames reports whether the lookup of a host's name fails. A client reports this failure immediately, or
// retries the connection later.
func (f fault) ofNames() bool { return f.name == "host unknown" || f.name == "no name server" }

// inAnswer reports whether the fault changes or interrupts a response that has begun.
func (f fault) inAnswer() bool {
	return slices.Contains([]string{"reset in the answer", "stall in the answer", "more announced than sent", "less announced than there is", "altered byte", "truncated"}, f.name)
}

// breaks reports whether the fault breaks the connection, or stalls it.
func (f fault) breaks() bool {
	return f.dial != nil || strings.HasPrefix(f.name, "reset") || strings.HasPrefix(f.name, "stall")
}

// passes reports whether the error shows the client that a retry might succeed soon.
func (f fault) passes() bool {
	return f.dial != nil || strings.HasPrefix(f.name, "reset") || f.name == "more announced than sent" ||
		slices.Contains([]string{"502", "503", "429", "503, come again in 7 s", "429, come again in 7 s"}, f.name) || f.name == "500"
}

func always(f faultproxy.Fault) func() faultproxy.Fault {
	return func() faultproxy.Fault { return f }
}

// lasts reports whether the gateway is allowed to return an error even if the fault affects only a single
// request. The reason is that clients wait only ten seconds, or that a blob of another size is not the
// requested blob.
func (f fault) lasts() bool {
	return strings.Contains(f.name, "come again") || f.name == "no answer to a dial" || f.name == "more announced than sent"
}

// allFaults returns all faults that can occur between a client and a host.
func allFaults(host string) []fault {
	return []fault{
		{name: "refused", dial: memnet.Refused()},
		{name: "host unknown", dial: memnet.Unknown(host)},
		{name: "no name server", dial: memnet.NoAnswer(host)},
		{name: "no answer to a dial", dial: memnet.Silence()},
		{name: "reset before the answer", fault: faultproxy.Cut},
		{name: "reset in the answer", fault: always(faultproxy.CutAt(10))},
		{name: "reset in the request", fault: always(faultproxy.CutUpload(1000))},
		{name: "stall before the answer", fault: faultproxy.Stall},
		{name: "stall in the answer", fault: always(faultproxy.StallAt(10))},
		{name: "slow drip", fault: always(faultproxy.Drip(time.Millisecond))},
		{name: "500", fault: always(faultproxy.Status(500, ""))},
		{name: "502", fault: always(faultproxy.Status(502, ""))},
		{name: "503", fault: always(faultproxy.Status(503, ""))},
		{name: "503, come again in 7 s", fault: always(faultproxy.Status(503, "7"))},
		{name: "429", fault: always(faultproxy.Status(429, ""))},
		{name: "429, come again in 7 s", fault: always(faultproxy.Status(429, "7"))},
		{name: "429, come again in an hour", fault: always(faultproxy.Status(429, "3600"))},
		{name: "page with 200", fault: faultproxy.HTML},
		{name: "more announced than sent", fault: always(faultproxy.Length(5))},
		{name: "less announced than there is", fault: always(faultproxy.Length(-5))},
		{name: "altered byte", fault: always(faultproxy.Alter(3))},
		{name: "truncated", fault: faultproxy.Half},
		{name: "token expires", fault: faultproxy.Expire},
		{name: "token never accepted", fault: always(func(x *faultproxy.Exchange) {
			x.R.Header.Del("Authorization") // as if the token were invalid by the server's clock
			x.Next.ServeHTTP(x.W, x.R)
		})},
		{name: "clock a day behind", fault: always(faultproxy.Date(-24 * time.Hour))},
	}
}

// chosen are the names of the faults that the short run tests. They include one fault of each kind.
var chosen = []string{"refused", "reset in the answer", "stall before the answer", "503", "page with 200", "altered byte", "truncated"}

// leave leaves a case to "make test-all" if the connection holds, and only the content is wrong. What the race detector could
// find then, the other faults show it too.
func (f fault) leave(t *testing.T) {
	t.Helper()
	if slices.Contains([]string{"page with 200", "altered byte", "truncated"}, f.name) {
		testkit.LeaveToAll(t)
	}
}

// faultsFor returns the faults between a client and a host that this run tests.
func faultsFor(host string) []fault {
	all := allFaults(host)
	if long() {
		return all
	}
	var out []fault
	for _, f := range all {
		if slices.Contains(chosen, f.name) {
			out = append(out, f)
		}
	}
	return out
}

// step is one request in a sequence.
type step struct {
	name  string
	match func(*http.Request) bool
}

// to returns a function that matches requests. A request matches if methods contains the request's method and
// the request's path contains part.
func to(methods, part string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return strings.Contains(methods, r.Method) && strings.Contains(r.URL.Path, part)
	}
}

// begin starts a fault in front of a server. The fault affects the requests that the step matches. It affects
// the given number of requests, or all requests if times is 0. begin returns a function that ends the fault.
func (f fault) begin(r *rig, at *faultproxy.Server, s step, times int) (end func()) {
	if f.dial == nil {
		return at.Begin(faultproxy.Rule{Match: s.match, Fault: f.fault(), Times: times})
	}
	// The connection of the request fails. All new connections also fail until the fault ends.
	ended := at.Begin(faultproxy.Rule{Match: s.match, Times: 1, Fault: func(x *faultproxy.Exchange) {
		r.net.Fail(at.Addr, f.dial)
		if times > 0 {
			time.AfterFunc(100*time.Millisecond, func() { r.net.Fail(at.Addr, nil) })
		}
		x.Cut()
	}})
	return func() {
		ended()
		r.net.Fail(at.Addr, nil)
	}
}
