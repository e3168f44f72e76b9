package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	orasauth "oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Repository diagnoses the repository of a provider or of a module.
type Repository struct {
	Subject subject.Address // the provider or module whose versions the repository holds
	Address ociaddr.Repository
	// Template is the template that yields Address.
	Template string
	// Store is a client for the repository. If there is no client, Store is nil and Err says why.
	Store *remote.Repository
	Err   error
	// Candidates are the sources in which a credential was looked for. They are nil for the embedded registry,
	// because it needs no credential.
	Candidates []login.Candidate
	Embedded   bool
	// Explain adds hints to errors.
	Explain func(error) error
	// Write allows Examine to push a test version. Examine deletes that version again if the login is allowed to.
	Write bool
}

// Shadowed returns a report that no likely address uses the given template. The parameter kind is "provider" or
// "module".
func Shadowed(kind, template string) *Report {
	r := &Report{Subject: template}
	r.warn("address", "name a "+kind+" that it is for; if there is none, remove its block, or narrow the include patterns of those before it",
		"templates before it take the likely %ss that it is for, or it excludes them", kind)
	return r
}

// NoRepository returns a report that a provider or a module has no repository.
func NoRepository(owner fmt.Stringer, err error) *Report {
	r := &Report{Subject: owner.String()}
	r.fail("address", err, "correct the repository template, or the provider block")
	return r
}

// Examine diagnoses a repository.
func (x Repository) Examine(ctx context.Context) *Report {
	r := &Report{Subject: x.Address.String()}
	x.examine(ctx, r)
	x.userName(r)
	return r
}

func (x Repository) examine(ctx context.Context, r *Report) {
	r.ok("address", "%s is kept in %s, by the template %s", x.Subject, x.Address, x.Template)
	ctx, cancel := context.WithTimeout(ctx, repositoryTimeout)
	defer cancel()
	if x.Store == nil {
		if x.credential(r, x.Err); !r.Failed() {
			r.fail("connection", x.Err, "check the registry's address and the settings for it")
		}
		return
	}
	if !x.Embedded && !r.proxy(ctx, x.url()) {
		x.credential(r, nil)
		return
	}
	var conn firstConn
	resp, err := x.get(conn.watch(ctx), "tags/list")
	x.credential(r, err)
	if !x.answers(r, resp, err, conn.tls) {
		return
	}
	tagged, there := x.tags(ctx, r)
	versions := slices.Collect(maps.Keys(tagged))
	provider.SortVersions(versions)
	switch {
	case there && len(versions) == 0:
		r.warn("pull", "push a version; in a proxy-cache project, the template names the project of the registry that it caches, too", "there is no version to read")
	case there:
		newest := versions[len(versions)-1]
		x.layout().pull(ctx, x, r, newest, tagged[newest])
	}
	x.push(ctx, r)
}

// repositoryTimeout limits the examination of one repository.
const repositoryTimeout = 2 * time.Minute

// url returns the URL of the registry.
func (x Repository) url() *url.URL {
	u := &url.URL{Scheme: "https", Host: x.Store.Reference.Host()}
	if x.Store.PlainHTTP {
		u.Scheme = "http"
	}
	return u
}

// credential reports which source of a credential was chosen, and why the other sources were not. err is the error of
// the first request to the registry.
func (x Repository) credential(r *Report, err error) {
	const name = "credential"
	if x.Embedded {
		r.ok(name, "none needed: the registry is in this process")
		return
	}
	var chosen login.Candidate
	var others []string
	var fault error // the error of a source that could have the right credential
	for _, c := range x.Candidates {
		switch {
		case c.Chosen:
			chosen = c
			continue
		case fault == nil:
			fault = c.Err
		}
		others = append(others, fmt.Sprintf("%s (%s)", c.Source, c.Reason))
	}
	detail := ""
	if len(others) > 0 {
		detail = "; also considered: " + list(others)
	}
	var asked *login.Error
	switch {
	case !chosen.Chosen && fault != nil:
		r.fail(name, errors.New("none was found"+detail), hint.Of(fault))
	case !chosen.Chosen:
		r.warn(name, fmt.Sprintf("that is right for a public repository; else run ocibridge login %s, or docker login %[1]s", x.Address.Registry), "none was found%s", detail)
	case chosen.Err != nil && errors.As(err, &asked):
		r.fail(name, fmt.Errorf("%s fails: %w%s", chosen.Source, chosen.Err, detail), "correct it, or take it out")
	case chosen.Err != nil:
		r.warn(name, hint.Of(chosen.Err), "%s fails: %v; the registry did not ask for it%s", chosen.Source, chosen.Err, detail)
	default:
		r.ok(name, "%s%s", chosen.Source, detail)
		x.openTofu(r)
	}
}

// openTofu checks whether OpenTofu's oci_mirror also finds a login for the repository.
func (x Repository) openTofu(r *Report) {
	const name = "oci_mirror"
	missed := ""
	for _, c := range x.Candidates {
		switch {
		case c.Login && c.Missed == "":
			r.ok(name, "OpenTofu finds %s, too", c.Source)
			return
		case c.Chosen:
			missed = c.Missed
		}
	}
	r.warn(name, fmt.Sprintf("for oci_mirror, write an oci_credentials %q block into OpenTofu's CLI configuration; clients of a gateway need none", x.Address.Registry),
		"OpenTofu's oci_mirror will not find this login: %s", missed)
}

// answers reports whether the registry can be reached and accepts the credential. resp and err are the result of
// the first request, which lists tags. conn is the TLS connection of that request. The bool is false if the
// registry cannot be used.
func (x Repository) answers(r *Report, resp *http.Response, err error, conn *tls.ConnectionState) bool {
	var answer *errcode.ErrorResponse // the response of a token server
	var login *login.Error
	asked := errors.As(err, &login)
	if err != nil && !asked && !errors.Is(err, orasauth.ErrBasicCredentialNotFound) && !errors.As(err, &answer) {
		r.fail("connection", x.Explain(err), "check the registry's address, and that it is running")
		return false
	}
	r.ok("connection", "%s answers", x.Address.Registry)
	if !x.Embedded {
		r.tls(conn, x.Address.Registry.IsLoopback(), time.Now())
	}
	const help = "check the credential, and its rights in the repository"
	if err != nil {
		if !asked { // if asked, the credential check has already failed
			x.refused(r, err, help)
		}
		return false
	}
	defer resp.Body.Close()
	if !x.Embedded {
		r.clock(resp.Header.Get("Date"), time.Now())
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		x.refused(r, refusals.Read(resp), help)
		return false
	case http.StatusOK, http.StatusNotFound:
		r.ok("authentication", "accepted")
		return true
	}
	r.fail("authentication", x.Explain(refusals.Read(resp)), "try again later, or ask the operator of the registry")
	return false
}

// refused reports the refusal of the first request.
func (x Repository) refused(r *Report, err error, help string) {
	name := "authentication"
	if refusals.NoProject(err) {
		name = "project"
	}
	r.fail(name, x.Explain(err), help)
}

// userName warns about the user name of the login if it may be the reason for a failed check.
func (x Repository) userName(r *Report) {
	for _, c := range x.Candidates {
		if c.Chosen && c.LostDollar && r.Failed() {
			r.warn("user name", "log in again with the name in single quotes: docker login -u 'robot$NAME' "+string(x.Address.Registry),
				`the user name of the login begins with "robot", but not with "robot$", as the names of Harbor's robots do: a shell reads $NAME in double quotes as a variable`)
		}
	}
}

// evidence checks the evidence of a stored version as the gateway's registry protocol does, and checks the signature as
// clients do. It also sets the report's Origin. A version without evidence needs no check.
func (x Repository) evidence(ctx context.Context, r *Report, a provider.Address, v provider.Version, found *artifact.Version) error {
	if found.Evidence == nil {
		return nil
	}
	e, err := artifact.ReadEvidence(ctx, x.Store, *found.Evidence)
	if err != nil {
		return fmt.Errorf("version %s: %w", v, err)
	}
	r.Origin = e.Record.Origin
	_, err = e.Verify(ctx, a, v, found.Packages, trust.Policy{AllowUnsigned: true})
	if errors.Is(err, artifact.ErrNothingToCheck) {
		return nil
	}
	return err
}

// get sends a GET request with the repository's credential. path is relative to the repository.
func (x Repository) get(ctx context.Context, path string) (*http.Response, error) {
	ctx = orasauth.AppendRepositoryScope(ctx, x.Store.Reference, orasauth.ActionPull)
	req, err := registry.NewRequest(ctx, x.Store, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	return x.Store.Client.Do(req)
}

// tags lists the tags of the repository. It returns the versions among them, each with its tag. The bool is false if
// the repository does not exist, or if its tags cannot be listed.
func (x Repository) tags(ctx context.Context, r *Report) (map[provider.Version]ociaddr.Tag, bool) {
	var tags []ociaddr.Tag
	pages := 0
	err := x.Store.Tags(ctx, "", func(page []string) error {
		pages++
		for _, t := range page {
			tags = append(tags, ociaddr.Tag(t))
		}
		return nil
	})
	var answer *errcode.ErrorResponse
	switch {
	case errors.Is(err, errdef.ErrNotFound), errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		help := "push a " + string(x.Subject.Kind())
		if !x.Embedded {
			help += "; Amazon ECR and Google Artifact Registry want the repository to be made first"
		}
		r.warn("tags", help, "there is no such repository yet")
		return nil, false
	case err != nil:
		r.fail("tags", x.Explain(err), "without a list of tags no client finds a version")
		return nil, false
	}
	versions := ociaddr.TagsOf(x.Subject, tags)
	r.ok("tags", "%s and %s, on %s", count(len(versions), "version"), count(len(tags)-len(versions), "other tag"), count(pages, "page"))
	r.foundTags(x.layout().lint(tags))
	return versions, true
}

// maxTagFindings is the maximum number of findings about tags in a report. Errors come first.
const maxTagFindings = 10

// foundTags reports tags that OpenTofu does not read as the gateway does.
func (r *Report) foundTags(found []artifact.Finding) {
	slices.SortStableFunc(found, func(a, b artifact.Finding) int { return cmp.Compare(a.Severity, b.Severity) }) // "error", "warning"
	for i, f := range found {
		switch {
		case i == maxTagFindings:
			r.warn("tag", "ocibridge verify names all of them", "%d more", len(found)-i)
			return
		case f.Severity == artifact.SeverityError:
			r.fail("tag", errors.New(f.What), f.Hint)
		default:
			r.warn("tag", f.Hint, "%s", f.What)
		}
	}
}

// layout reads and writes versions in one layout. It is ofProvider or ofZip.
type layout interface {
	// pull reads the newest version from its tag as the gateway does.
	pull(ctx context.Context, x Repository, r *Report, newest provider.Version, tag ociaddr.Tag)
	// run pushes the parts of a test version. It stops if the registry refuses a part that every version needs.
	run(ctx context.Context, t *trial, r *Report)
	// lint returns the findings about tags.
	lint(tags []ociaddr.Tag) []artifact.Finding
}

type (
	ofProvider struct{ provider.Address }
	ofZip      struct{ subject.Address } // of a kind whose versions have no packages for platforms
)

func (x Repository) layout() layout {
	if a, ok := x.Subject.(provider.Address); ok {
		return ofProvider{a}
	}
	return ofZip{x.Subject}
}

func (ofProvider) lint(tags []ociaddr.Tag) []artifact.Finding { return artifact.LintTags(tags) }
func (ofZip) lint([]ociaddr.Tag) []artifact.Finding           { return nil }

func (a ofProvider) pull(ctx context.Context, x Repository, r *Report, newest provider.Version, _ ociaddr.Tag) {
	v, err := artifact.Read(ctx, x.Store, a.Address, newest)
	if err != nil {
		r.fail("pull", x.Explain(fmt.Errorf("version %s: %w", newest, err)), helpUnreadable(err, a.Address, "ocibridge push --force"))
		return
	}
	var platforms []string
	for _, p := range v.Packages {
		platforms = append(platforms, p.Platform.String())
		for _, part := range []ocispec.Descriptor{p.Manifest, p.Layer()} {
			exists, err := registry.ReadOnly{Repository: x.Store}.Exists(ctx, part)
			if err == nil && !exists {
				err = fmt.Errorf("version %s lacks %s, of the package for %s", newest, part.Digest, p.Platform)
			}
			if err != nil {
				r.fail("pull", x.Explain(err), "a clean-up job may have deleted what an index still names; ocibridge push --force sends it again")
				return
			}
		}
	}
	if err := x.evidence(ctx, r, a.Address, newest, v); err != nil {
		r.fail("pull", x.Explain(err), "clients with a host block cannot install this version: ocibridge verify says more")
		return
	}
	r.ok("pull", "the newest version, %s, is complete for %s", newest, list(platforms))
}

func (a ofZip) pull(ctx context.Context, x Repository, r *Report, newest provider.Version, tag ociaddr.Tag) {
	again := subject.TraitsOf(a).Replace
	m, err := artifact.ReadTagged(ctx, x.Store, a.Address, newest, tag)
	if err != nil {
		r.fail("pull", x.Explain(fmt.Errorf("version %s: %w", newest, err)), helpUnreadable(err, a.Address, again))
		return
	}
	exists, err := registry.ReadOnly{Repository: x.Store}.Exists(ctx, m.Zip().Layer())
	if err == nil && !exists {
		err = fmt.Errorf("version %s lacks its zip, %s", newest, m.Zip().Digest)
	}
	if err != nil {
		r.fail("pull", x.Explain(err), "a clean-up job may have deleted what a manifest still names; "+again+" sends it again")
		return
	}
	r.ok("pull", "the newest version, %s, is complete, with a zip of %s", newest, count(int(m.Zip().Size), "byte"))
}

// helpUnreadable returns the hint for a version of a provider or module that cannot be read.
// The parameter again is the command that pushes the version again.
func helpUnreadable(err error, a subject.Address, again string) string {
	if errors.Is(err, artifact.ErrForeign) { // --force does not replace foreign content
		return artifact.HelpForeign(err, a)
	}
	return "push this version anew; " + again + " replaces what the tag names"
}

func count(n int, thing string) string { return hint.Count(n, thing) }

// drain reads up to 64 KiB of a response body, and closes the body, so that the connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	body.Close()
}
