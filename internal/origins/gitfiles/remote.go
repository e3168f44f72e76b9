package gitfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

// maxBeforePack is the maximum size in bytes of what a server sends before a pack, and of each error document.
const maxBeforePack = 1 << 20

// listWork is the work that each byte of a list of references costs.
const listWork = 8

// maxBeginning is the number of bytes in which a server lists its capabilities.
const maxBeginning = 4 << 10

// remote is a repository on a server.
type remote struct {
	url     *url.URL
	gate    *gate
	session transport.UploadPackSession
	can     *capability.List
	refs    *Refs
	listed  int64 // bytes of the list of references
}

// connect reads the references of a repository, of at most limit bytes.
func connect(ctx context.Context, o Options, limit int64, rawURL string) (*remote, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	g := &gate{next: o.HTTP.Transport, login: o.Login, own: u, list: limit}
	client := *o.HTTP
	client.Transport, client.Jar = g, nil
	if check := o.HTTP.CheckRedirect; check != nil {
		client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
			g.failed = check(r, via)
			return g.failed
		}
	}
	endpoint, err := transport.NewEndpoint(withoutUser(u).String())
	if err != nil {
		return nil, err
	}
	session, err := githttp.NewClient(&client).NewUploadPackSession(endpoint, nil)
	if err != nil {
		return nil, err
	}
	adv, err := session.AdvertisedReferencesContext(ctx)
	switch {
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return nil, hint.Wrap(fmt.Errorf("%w: the repository is empty", ErrNoRef), "is it the right repository?")
	case err != nil && bytes.Contains(g.beginning, []byte(" object-format=sha256")):
		return nil, hint.Wrap(refuse("the repository names its objects by SHA-256"), "only repositories with SHA-1 are supported: push a folder that has the files")
	case err != nil:
		return nil, g.explain(err)
	}
	r := &remote{url: u, gate: g, session: session, can: adv.Capabilities, refs: newRefs(display(rawURL), adv), listed: limit - g.limit.Load()}
	adv.References, adv.Peeled = nil, nil // go-git would hold them as long as the session
	return r, nil
}

// parseURL parses the URL of a repository.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme != "https":
		return nil, hint.Wrap(refuse("%s is not an https URL", display(raw)), "Git repositories are fetched over https only")
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, hint.Wrap(refuse("%s is not the https URL of a repository", display(raw)), "the URL of a Git repository has a host and a path, and no query except ref and depth")
	}
	return u, nil
}

func withoutUser(u *url.URL) *url.URL {
	without := *u
	without.User = nil
	return &without
}

// display returns a URL for messages. It omits everything that can contain a secret.
func display(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		return hint.OneLine(fmt.Sprintf("%.200s", (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()))
	}
	if before, _, scp := strings.Cut(raw, "@"); scp && !strings.ContainsAny(before, "/:") {
		_, raw, _ = strings.Cut(raw, "@")
	} else if strings.Contains(raw, "@") {
		return "the URL"
	}
	raw, _, _ = strings.Cut(raw, "?")
	return hint.OneLine(fmt.Sprintf("%.200q", raw))
}

// gives reports whether the server sends a commit although no reference names it.
func (r *remote) gives() bool {
	return r.can.Supports(capability.AllowReachableSHA1InWant)
}

// history are options of a fetch.
type history int

const (
	oneCommit   history = iota // the commit with all its files
	commitsOnly                // all commits of all tags and branches, without files
	everything
)

// fetch fetches objects into a pack.
func (f *fetcher) fetch(ctx context.Context, r *remote, h history, want ...plumbing.Hash) (*pack, error) {
	// 1. Ask.
	request := packp.NewUploadPackRequestFromCapabilities(r.can)
	request.Wants = want
	if r.can.Supports(capability.NoProgress) {
		request.Capabilities.Set(capability.NoProgress)
	}
	if h == oneCommit && r.can.Supports(capability.Shallow) {
		request.Depth = packp.DepthCommits(1)
		request.Capabilities.Set(capability.Shallow)
	}
	if h == commitsOnly {
		request.Filter = packp.FilterTreeDepth(0)
		request.Capabilities.Set(capability.Filter)
	}
	if bytes.Contains(r.gate.beginning, []byte(" "+capability.MultiACK)) {
		// go-git hides this capability, without which Azure DevOps sends nothing. It has no effect if the client has no commits.
		request.Capabilities.Set(capability.MultiACK)
	}
	r.gate.limit.Store(maxBeforePack)
	whole := ctx
	ctx, cancel := context.WithCancelCause(whole) // for the request
	defer cancel(nil)
	r.gate.watch(cancel)
	defer r.gate.watch(nil)
	response, err := r.session.UploadPack(ctx, request)
	if err != nil {
		if r.gate.body != nil {
			r.gate.body.Close()
		}
		return nil, r.gate.explainIn(ctx, err)
	}
	defer response.Close()
	// 2. Store the pack.
	r.gate.limit.Store(2 * (f.limits.pack - f.packs)) // with the framing
	file, err := fill.NewTemp(f.options.Temp, "ocibridge-*.pack")
	if err != nil {
		return nil, temporary(err)
	}
	to, failed := Metered(file, f.options.Meter)
	size, err := io.Copy(to, io.LimitReader(files.ContextReader{Context: ctx, Reader: packOnly(request.Capabilities, response)}, f.limits.pack-f.packs+1))
	_, atFile := errors.AsType[*fs.PathError](err)
	switch f.packs += size; {
	case failed() != nil:
		file.Close()
		return nil, failed()
	case atFile:
		file.Close()
		return nil, temporary(err)
	case err != nil:
		file.Close()
		return nil, r.gate.explainIn(ctx, err)
	case f.packs > f.limits.pack:
		file.Close()
		return nil, hint.Wrap(refuse("the server sent more than %d MiB", f.limits.pack>>20), helpHistory)
	}
	// 3. Index it.
	r.gate.watch(nil)
	f.budget.work += size * f.limits.packWork
	p := newPack(file, f.options, size, f.budget)
	if err := p.index(whole, f.limits.objects); err != nil {
		p.close()
		if cause := context.Cause(whole); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("the pack of the server: %w", err)
	}
	return p, nil
}

// packOnly returns a reader of the pack without progress messages.
func packOnly(can *capability.List, from io.Reader) io.Reader {
	switch {
	case can.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, from)
	case can.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, from)
	}
	return from
}

// objects returns a pack that contains all objects of the wanted commit, and the ID of its commit or tag.
func (f *fetcher) objects(ctx context.Context, r *remote, w *wanted) (*pack, plumbing.Hash, error) {
	if w.abbreviated == "" && (w.listed || r.gives()) {
		r.refs = nil // to free memory
		p, err := f.fetch(ctx, r, oneCommit, w.id)
		return p, w.id, err
	}
	all := r.refs.all()
	r.refs = nil
	if len(all) == 0 {
		return nil, plumbing.ZeroHash, fmt.Errorf("%w: the repository has no tags and branches", ErrNoRef)
	}
	if w.abbreviated != "" && r.gives() && r.can.Supports(capability.Filter) {
		p, err := f.fetch(ctx, r, commitsOnly, all...)
		if err != nil {
			return nil, plumbing.ZeroHash, err
		}
		defer p.close()
		full, err := p.complete(w)
		if err != nil {
			return nil, plumbing.ZeroHash, err
		}
		p.close()
		one, err := f.fetch(ctx, r, oneCommit, full)
		return one, full, err
	}
	p, err := f.fetch(ctx, r, everything, all...)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	id := w.id
	if w.abbreviated != "" {
		id, err = p.complete(w)
	} else if _, found := p.find(id); !found {
		err = hint.Wrap(fmt.Errorf("%w: %s", ErrNoRef, id), "no tag and no branch contains the commit")
	}
	if err != nil {
		p.close()
		return nil, plumbing.ZeroHash, err
	}
	return p, id, nil
}

// all returns the IDs of all tags and branches.
func (r *Refs) all() []plumbing.Hash {
	var out []plumbing.Hash
	for name, id := range r.refs {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/") {
			out = append(out, id)
		}
	}
	return out
}

// gate is the transport of one repository. It limits the bytes of responses, and adds to each request the login of its host.
type gate struct {
	next  http.RoundTripper
	login func(string) (string, string)
	own   *url.URL
	list  int64        // bytes of the list of references
	limit atomic.Int64 // bytes of the response that is being read
	// beginning is the beginning of the list of references, where the server's capabilities are.
	beginning []byte
	// failed is the reason why the last request failed. Some errors of go-git contain only the text of the reason, and those of
	// net/http can contain a URL with a secret.
	failed error
	// body is the body of the last response. go-git does not close it after each error.
	body io.Closer
	// silence ends the request for a pack when the server has sent nothing for maxSilence. It is nil before and after that request.
	silence *time.Timer
}

// maxSilence is how long a server may send nothing of a pack. Git servers send something every few seconds, even while they
// look for objects.
const maxSilence = time.Minute

var errSilent = hint.New("the server sent nothing for "+maxSilence.String(), "is it overloaded? Try again later")

// watch begins to watch a request for silence. If end is nil, it stops.
func (g *gate) watch(end context.CancelCauseFunc) {
	if g.silence != nil {
		g.silence.Stop()
		g.silence = nil
	}
	if end != nil {
		g.silence = time.AfterFunc(maxSilence, func() { end(errSilent) })
	}
}

// statusError is a response that has an unexpected status.
type statusError struct {
	host   string
	status int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answered with status %d %s", e.host, e.status, http.StatusText(e.status))
}

// RoundTrip implements [http.RoundTripper].
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.roundTrip(r)
	if g.failed = err; err != nil {
		return nil, err
	}
	return resp, nil
}

func (g *gate) roundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	if user, password := g.loginFor(r.URL); user != "" || password != "" {
		r.SetBasicAuth(user, password)
	}
	if r.Method == http.MethodGet {
		g.limit.Store(g.list)
	}
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := checkResponse(r, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	body := &limited{ReadCloser: resp.Body, gate: g, list: r.Method == http.MethodGet}
	resp.Body, g.body = body, body
	return resp, nil
}

// checkResponse returns an error unless the status is OK, or a redirect that can be followed.
func checkResponse(r *http.Request, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return checkRedirect(r, resp.Header.Get("Location"))
	}
	err := &statusError{r.URL.Host, resp.StatusCode}
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return hint.Wrap(fmt.Errorf("%w: %w", ErrDenied, err), "is it the right repository? A private one needs a login for %s", r.URL.Host)
	case r.Method == http.MethodGet && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone):
		return hint.Wrap(fmt.Errorf("%w: %w", ErrNoRepository, err), "is it the right repository? A private one may need a login for %s", r.URL.Host)
	case outgoing.IsLater(resp.StatusCode):
		return hint.Wrap(outgoing.NewLaterError(resp.Header, err), "the Git server is overloaded, or limits the rate of requests: run it again later")
	case resp.StatusCode >= http.StatusInternalServerError:
		return hint.Wrap(err, "the Git server reports an error: run it again later")
	}
	return hint.Wrap(err, "is it the URL of a Git repository?")
}

// checkRedirect refuses the redirects that Git does not follow, so that no error of net/http or go-git shows their URLs.
func checkRedirect(r *http.Request, location string) error {
	to, err := r.URL.Parse(location)
	switch {
	case err != nil || location == "":
		return hint.Wrap(refuse("%s redirected to something that is not a URL", r.URL.Host), "is it the URL of a Git repository?")
	case to.Scheme != "https":
		return hint.Wrap(refuse("redirected to %s", display(to.String())), "Git repositories are fetched over https only")
	case r.Method != http.MethodGet:
		return hint.Wrap(refuse("redirected to %s after the list of references", display(to.String())), "Git follows only the first redirect: is it the URL of a Git repository?")
	}
	return nil
}

// loginFor returns the login for a URL.
func (g *gate) loginFor(u *url.URL) (string, string) {
	if g.own.User != nil && hostOf(u) == hostOf(g.own) {
		password, _ := g.own.User.Password()
		return g.own.User.Username(), password
	}
	if g.login == nil {
		return "", ""
	}
	return g.login(hostOf(u))
}

// explainIn is like explain, but returns the reason why a request's context has ended, if it has.
func (g *gate) explainIn(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return g.explain(err)
}

// hostOf returns the host of a URL, with its port unless that is the default.
func hostOf(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Host), ":443") }

// explain returns the reason for an error of go-git.
func (g *gate) explain(err error) error {
	if g.failed != nil {
		return g.failed
	}
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		err = errors.New(line.Text)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	text := hint.OneLine(err.Error())
	if strings.Contains(text, "not our ref") {
		return hint.Wrap(fmt.Errorf("%w: the server does not give this commit", ErrNoRef), "does a tag or branch of this repository contain it?")
	}
	return hint.Brief(hint.Wrap(errors.New("unexpected answer: "+text), "is it the URL of a Git repository?"))
}

// limited is a body that fails after the gate's limit.
type limited struct {
	io.ReadCloser
	gate   *gate
	list   bool // of references
	closed bool
}

// Close closes the body once, although both go-git and this package call it.
func (l *limited) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	return l.ReadCloser.Close()
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.gate.silence != nil && n > 0 {
		l.gate.silence.Reset(maxSilence)
	}
	if l.list {
		l.gate.beginning = append(l.gate.beginning, p[:min(n, maxBeginning-len(l.gate.beginning))]...)
	}
	if l.gate.limit.Add(int64(-n)) < 0 {
		err = hint.Wrap(refuse("the server sent too many bytes"), "is it the right repository?")
		n = 0
	}
	if err != nil && err != io.EOF {
		l.gate.failed = err
	}
	return n, err
}
