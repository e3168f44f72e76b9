package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/neterr"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Explain adds a hint to err, an error from using the repository. The hint says which
// login was used, and what to run or to configure. The text and the chain of err stay the
// same. Explain returns err unchanged if it is nil, already has a hint, or means that the
// caller cancelled the request.
func (c *Client) Explain(err error, r ociaddr.Repository) error {
	if err == nil || errors.Is(err, context.Canceled) || hint.Of(err) != "" {
		return err
	}
	h := outgoing.ProxyHint(err) // if the proxy itself responds with an error, that error has a hint
	for _, explain := range []func(error, ociaddr.Repository) string{
		c.explainPlainHTTP, explainSymptom, c.explainTLS, c.explainAnswer, c.explainCredential,
	} {
		if h == "" {
			h = explain(err, r)
		}
	}
	if h == "" {
		return err
	}
	return hint.Wrap(err, "%s", h)
}

// explainPlainHTTP returns the hint for a server that ends connections because it speaks
// TLS only.
func (c *Client) explainPlainHTTP(err error, r ociaddr.Repository) string {
	if !neterr.Lost(err) || neterr.Refused(err) || !c.Connections.AllowsPlainHTTP(r.Registry) || r.Registry.IsLoopback() {
		return ""
	}
	return fmt.Sprintf("%s may speak TLS: leave out --plain-http, and plain_http in its registry block", r.Registry)
}

// symptoms lists failures with their hints. The first entry whose recognise function
// returns true applies. In a hint, {registry}, {name} and {project} stand for the
// registry, the repository's name and its project.
var symptoms = []struct {
	recognise func(error) bool
	hint      string
}{
	{isForeign, "a proxy, a web site or a login page answers there, perhaps while the registry is down: check that {registry} is the host name of the registry itself"},
	{is[*wire.PlainHTTPError], "that host should use TLS; to allow plain HTTP, use --plain-http, or plain_http in a registry block for the host"},
	{isPlainHTTP, "{registry} speaks plain HTTP: set TLS up there, or allow plain HTTP with --plain-http, or plain_http in its registry block"},
	{isOtherDigest, "{registry}, or a proxy in front of it, returned a different digest than requested: run the command again, and report it to the operator"},

	{is[x509.HostnameError], "the certificate of {registry} is for other names: use one of them, or have it made out for this one"},
	{when(func(e x509.CertificateInvalidError) bool { return e.Reason == x509.Expired }), "renew the certificate of {registry}, or set the clock of this machine"},

	{when(func(e *net.DNSError) bool { return e.IsNotFound }), "there is no such host: check the spelling of its name"},
	{is[*net.DNSError], "the name could not be looked up: check the network and its DNS servers"},
	{neterr.Refused, "nothing listens at that address: check the name of the registry ({registry}), its port, and that it is running"},
	{when(net.Error.Timeout), "{registry} did not answer in time: check the network, and whether it wants a proxy (HTTPS_PROXY)"},
	{isLost, "the connection to {registry} broke off, or went silent: run it again; if that does not help, is there a proxy in between?"},

	{refusals.Full, "{registry} has no room for more in {name}: have the quota raised (in Harbor, that of the project), or remove versions and have the registry's garbage collection run"},
	{refusals.NoProject, `create the project "{project}" on {registry}, or correct the template, whose first part after the host names a project: a new login does not help`},
	{refusals.NameWithoutProject, "in Harbor a repository name begins with its project: correct the template, such as {registry}/PROJECT/${namespace}/${type}"},
	{refusals.ProxyCache, `the project "{project}" on {registry} is a proxy cache, which takes no pushes: name another project in the template, or push to the registry that it caches`},
	{refusals.ReadOnly, "{registry} is in read-only mode, and takes no changes from any login: run it again when its administrator has ended that"},
	{refusals.Policy, `a policy of the project "{project}" forbids everybody to read this artifact: switch the policy off (in Harbor: the project's Configuration, Deployment security), or meet it, such as by cosign sign --recursive`},
	{refusals.Immutable, "a rule of {registry} makes this tag immutable: change the rule (in Harbor: the project's Policy, Tag Immutability), or leave the version as it is"},
	{hasStatus(http.StatusPreconditionFailed), "a rule of {registry} refuses this: in Harbor that is a quota, an immutable tag or a policy of the project"},
	{hasStatus(http.StatusRequestEntityTooLarge), "a proxy in front of {registry} limits the size of uploads (nginx calls the limit client_max_body_size)"},
	{hasStatus(http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout), "{registry} reports a server error: try again later"},
}

// explainSymptom returns the hint of the first of the symptoms that recognises err.
func explainSymptom(err error, r ociaddr.Repository) string {
	for _, s := range symptoms {
		if s.recognise(err) {
			return strings.NewReplacer("{registry}", string(r.Registry), "{name}", r.Name, "{project}", project(r)).Replace(s.hint)
		}
	}
	return ""
}

// is reports whether err wraps an error of type T.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// when returns a function that reports whether an error wraps an error of type T for which
// meets returns true.
func when[T error](meets func(T) bool) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[T](err)
		return ok && meets(e)
	}
}

// hasStatus returns a function that reports whether an error is a registry's response
// with one of the statuses.
func hasStatus(statuses ...int) func(error) bool {
	return when(func(e *errcode.ErrorResponse) bool { return slices.Contains(statuses, e.StatusCode) })
}

func isPlainHTTP(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || is[tls.RecordHeaderError](err)
}

// isOtherDigest reports whether err is oras-go's error for a wrong digest, which has no type.
func isOtherDigest(err error) bool {
	return strings.Contains(err.Error(), "invalid response; digest mismatch")
}

// isForeign reports whether err is a [wire.ForeignError], or the JSON decoder's error for a
// document that begins with "<". Such a document is an HTML page that was sent without
// the media type of HTML.
func isForeign(err error) bool {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	return is[*wire.ForeignError](err) || ok && strings.Contains(syntax.Error(), "'<'")
}

func isLost(err error) bool { return neterr.Lost(err) || errors.Is(err, wire.ErrStalled) }

// explainTLS returns the hint for a registry's certificate that is not trusted, or for a
// client certificate that the registry refuses or requires.
func (c *Client) explainTLS(err error, r ociaddr.Repository) string {
	switch {
	case is[x509.UnknownAuthorityError](err), is[*tls.CertificateVerificationError](err):
		env := c.opts.Login.Environment
		if env.GOOS == "darwin" || env.GOOS == "windows" {
			return fmt.Sprintf("add the CA that issued the certificate of %s to the system's trust store, or name its PEM file with --ca-file, or as ca_file in a registry block", r.Registry)
		}
		own := "or in SSL_CERT_FILE"
		if file := env.Variable("SSL_CERT_FILE"); file != "" {
			own = fmt.Sprintf("or add the CA to %s, which SSL_CERT_FILE names. If it is from a public CA, unset SSL_CERT_FILE: it replaces the bundle of public CAs on systems that keep them in no folder", file)
		}
		return fmt.Sprintf("if the certificate of %s is from a CA of your own, name the CA's PEM file with --ca-file, as ca_file in a registry block, %s", r.Registry, own) + outgoing.InspectionHint(string(r.Registry))
	case certificateRefused.MatchString(err.Error()):
		if s := c.Connections.Settings(r.Registry); s.ClientCert != nil {
			return fmt.Sprintf("%s does not accept the certificate that client_cert_file names%s: find out which authority it accepts", r.Registry, s.At())
		}
		return fmt.Sprintf("%s probably wants a client certificate: name one, and its key, as client_cert_file and client_key_file in a registry block", r.Registry)
	}
	return ""
}

// certificateRefused matches the alerts of a server that refuses or requires a client
// certificate. crypto/tls exports no type for them.
var certificateRefused = regexp.MustCompile(`remote error: tls: (certificate required|bad certificate|unknown certificate|unknown certificate authority|expired certificate|handshake failure)$`)

// explainAnswer returns the hint for a refusal that is not about the credential.
func (c *Client) explainAnswer(err error, r ociaddr.Repository) string {
	answer, ok := errors.AsType[*errcode.ErrorResponse](err)
	if !ok {
		return ""
	}
	switch answer.StatusCode {
	case http.StatusBadRequest:
		if hasCode(answer, errcode.ErrorCodeNameInvalid) {
			return fmt.Sprintf("%s does not accept this repository name: correct the template%s", r.Registry, rightsNote(r))
		}
		if answer.URL != nil && answer.URL.Scheme == "http" && len(answer.Errors) == 0 {
			return fmt.Sprintf("%s may speak TLS: leave out --plain-http, and plain_http in its registry block", r.Registry)
		}
	case http.StatusNotFound:
		begins := answer.Method == http.MethodPost && answer.URL != nil && strings.HasSuffix(answer.URL.Path, "/blobs/uploads/")
		if begins || hasCode(answer, errcode.ErrorCodeNameUnknown) {
			return howToCreate(r)
		}
	case http.StatusProxyAuthRequired:
		if answer.URL != nil && answer.URL.Scheme == "http" {
			return outgoing.ProxyLoginHint(answer.URL)
		}
	case http.StatusTooManyRequests:
		if account, _, err := c.bind(r); err != nil || account.Used() == "" {
			return fmt.Sprintf("%s limits requests: try again later, or log in, which often raises the limit: %s", r.Registry, login.Command(r.Registry))
		}
		return fmt.Sprintf("%s limits requests: try again later", r.Registry)
	}
	return ""
}

func hasCode(answer *errcode.ErrorResponse, code string) bool {
	return slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return e.Code == code })
}

// explainCredential returns the hint for a refusal of the credential.
func (c *Client) explainCredential(err error, r ociaddr.Repository) string {
	unauthorized, forbidden := hasStatus(http.StatusUnauthorized)(err), hasStatus(http.StatusForbidden)(err)
	// oras-go has no error type for this case: the registry wants a password, but the login has
	// only a token.
	noPassword := strings.Contains(err.Error(), "missing username or password for basic auth")
	if !unauthorized && !forbidden && !noPassword && !errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return ""
	}
	account, sender, berr := c.bind(r)
	if berr != nil || account.Used() == "" {
		return c.Logins.ExplainNone(r)
	}
	used := account.Used()
	switch {
	case noPassword:
		return fmt.Sprintf("used %s: it has no user name and password, and %s takes no tokens", used, r.Registry)
	case unauthorized && sender.LacksRight():
		return fmt.Sprintf("used %s: it lacks the right to do this in %s%s", used, r.Name, rightsNote(r))
	case (unauthorized || forbidden) && sender.Accepted() && refusals.MissingRight(err) != "":
		return harborRight(used, r, refusals.MissingRight(err))
	case forbidden:
		return fmt.Sprintf("used %s: it may lack the right to do this in %s, or there is no such repository%s", used, r.Name, rightsNote(r))
	}
	return fmt.Sprintf("used %s: not accepted; it may have expired; %s", used, account.Renew())
}

var amazonECR = regexp.MustCompile(`^\d+\.dkr\.ecr(-fips)?\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$`)

// howToCreate says how to create the repository, or the project that contains it. Some
// registries require it to exist before the first push.
func howToCreate(r ociaddr.Repository) string {
	first, host := project(r), string(r.Registry)
	if m := amazonECR.FindStringSubmatch(host); m != nil {
		return fmt.Sprintf("create the repository first: aws ecr create-repository --region %s --repository-name %s", m[2], r.Name)
	}
	if host == "public.ecr.aws" {
		return fmt.Sprintf("create the repository first: aws ecr-public create-repository --region us-east-1 --repository-name %s", strings.TrimPrefix(r.Name, first+"/"))
	}
	if location, ok := strings.CutSuffix(host, "-docker.pkg.dev"); ok {
		if parts := strings.Split(r.Name, "/"); len(parts) > 2 {
			return fmt.Sprintf("create the repository first: gcloud artifacts repositories create %s --repository-format=docker --location=%s --project=%s",
				parts[1], location, parts[0])
		}
		return "a repository there is " + host + "/PROJECT/REPOSITORY/...: put both before the provider in the template"
	}
	return fmt.Sprintf("on many registries the first part of the name must exist: create %q on %s, such as a Harbor project or an Artifactory repository of type Docker, or correct the template", first, host)
}

// rightsNote names the permissions that a login for the repository's registry most often
// lacks. It returns "" for unknown registries.
func rightsNote(r ociaddr.Repository) string {
	switch host := string(r.Registry); {
	case r.Registry.Canonical() == ociaddr.DockerHub && strings.Count(r.Name, "/") > 1:
		return "; names on Docker Hub have two parts: use a template such as docker.io/acme/${namespace}-${type}"
	case host == "ghcr.io":
		return "; GHCR wants a token (classic) with read:packages, and write:packages to push, or a workflow's token with the permission packages: write"
	case strings.Contains(host, "gitlab"):
		return "; GitLab wants a token with read_registry, and write_registry to push, and a project whose path the name begins with"
	case amazonECR.MatchString(host):
		return "; Amazon ECR wants ecr:BatchGetImage and ecr:GetDownloadUrlForLayer, and to push ecr:InitiateLayerUpload, ecr:UploadLayerPart, ecr:CompleteLayerUpload and ecr:PutImage"
	case strings.HasSuffix(host, ".azurecr.io"):
		return "; Azure wants the role AcrPull, and AcrPush to push, or a token whose scope map has the repository"
	case strings.HasSuffix(host, "-docker.pkg.dev"):
		return "; Google wants the role roles/artifactregistry.reader, and roles/artifactregistry.writer to push"
	}
	return ""
}

// harborRight returns the hint for a login that lacks a right in Harbor. used describes the
// login. The hint names the permission and the role that give the right.
func harborRight(used string, r ociaddr.Repository, right string) string {
	permission, role := "Pull", "Guest"
	switch right {
	case "push":
		permission, role = "Push", "Developer"
	case "delete":
		permission, role = "Delete", "Maintainer"
	}
	return fmt.Sprintf("%s was accepted, but lacks the right to %s in the project %q: in Harbor, a robot needs the permission Repository: %s, and a user the role %s or a higher one",
		used, right, project(r), permission, role)
}

// project returns the first part of a repository's name, which in Harbor names the project.
func project(r ociaddr.Repository) string {
	first, _, _ := strings.Cut(r.Name, "/")
	return first
}
