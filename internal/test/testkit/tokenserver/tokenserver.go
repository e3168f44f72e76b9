// Package tokenserver provides the token server of an OCI registry. It knows users and their rights, and issues
// signed tokens. Real registries accept these tokens. The server follows the token and OAuth2 specifications of
// the distribution project.
package tokenserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// Issuer and Service are the settings with which a registry accepts the tokens.
const (
	Issuer  = "ocibridge-test-issuer"
	Service = "ocibridge-test-registry"
)

// User is a user's password and rights.
type User struct {
	Password string
	// May says which of the actions pull, push and delete the user may perform. The keys are repositories, or
	// prefixes of repository names that end in a slash.
	May map[string][]string
}

// Options configure a token server. The zero value means a server without users.
type Options struct {
	Users map[string]User
	// Life is the lifetime of tokens, in whole seconds. 0 means five minutes.
	Life time.Duration
	// Terse omits the lifetime and the issue time of tokens from responses.
	Terse bool
}

// A Server is the handler of a token server. It serves every path. Its methods are safe for concurrent use.
type Server struct {
	opts Options
	key  *ecdsa.PrivateKey
	cert []byte // DER

	mu      sync.Mutex
	asked   []string
	refresh map[string]string // refresh token -> user
}

var _ http.Handler = (*Server)(nil)

// New returns a server with a new signing key.
func New(opts Options) (*Server, error) {
	if opts.Life == 0 {
		opts.Life = 5 * time.Minute
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: Issuer},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Server{opts: opts, key: key, cert: cert, refresh: map[string]string{}}, nil
}

// For is like [New], but fails the test if there is an error.
func For(tb testkit.TB, opts Options) *Server {
	tb.Helper()
	s, err := New(opts)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// Auth returns the settings with which a registry accepts this server's tokens. realm is the URL of this server.
// Auth writes the certificate that verifies the tokens into dir.
func (s *Server) Auth(realm, dir string) (*registry.TokenAuth, error) {
	path := filepath.Join(dir, "token-issuer.pem")
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert})
	return &registry.TokenAuth{Realm: realm, Service: Service, Issuer: Issuer, RootCertBundle: path}, os.WriteFile(path, bundle, 0o600)
}

// Asked returns one line for each request for a token. A line consists of the user and the sorted scopes,
// separated by spaces. The user of an anonymous request is "".
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// RefreshToken returns a new refresh token for a user.
func (s *Server) RefreshToken(user string) string {
	token := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh[token] = user
	return token
}

// ServeHTTP implements [http.Handler]. It serves anonymous GET requests, GET requests with a password, and POST
// requests with a password or a refresh token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	user, ok := s.authenticate(r)
	if !ok {
		fail(w, http.StatusUnauthorized, "authentication required")
		return
	}
	var scopes []string
	for _, s := range r.Form["scope"] {
		scopes = append(scopes, strings.Fields(s)...)
	}
	slices.Sort(scopes)
	s.mu.Lock()
	s.asked = append(s.asked, strings.Join(append([]string{user}, scopes...), " "))
	s.mu.Unlock()
	token, err := s.Token(user, scopes...)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer := map[string]any{"token": token, "access_token": token}
	if !s.opts.Terse {
		answer["expires_in"] = int(s.opts.Life.Seconds())
		answer["issued_at"] = time.Now().UTC().Format(time.RFC3339)
	}
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(answer)
}

// authenticate returns the user of a request. The user is "" if the request is anonymous. ok is false if the
// credential is wrong.
func (s *Server) authenticate(r *http.Request) (user string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user, password, basic := r.BasicAuth()
	switch {
	case r.Form.Get("grant_type") == "refresh_token":
		user, ok = s.refresh[r.Form.Get("refresh_token")]
		return user, ok
	case r.Form.Get("grant_type") == "password":
		user, password = r.Form.Get("username"), r.Form.Get("password")
	case !basic:
		return "", true
	}
	known, ok := s.opts.Users[user]
	return user, ok && known.Password == password
}

type access struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

// Token returns a token for the scopes. The token contains only actions that the user may perform.
func (s *Server) Token(user string, scopes ...string) (string, error) {
	granted := []access{}
	for _, scope := range scopes {
		parts := strings.SplitN(scope, ":", 2)
		end := strings.LastIndex(scope, ":")
		if len(parts) != 2 || end <= len(parts[0]) {
			return "", fmt.Errorf("scope %q", scope)
		}
		a := access{Type: parts[0], Name: scope[len(parts[0])+1 : end], Actions: []string{}}
		for action := range strings.SplitSeq(scope[end+1:], ",") {
			if s.may(user, a.Name, action) {
				a.Actions = append(a.Actions, action)
			}
		}
		granted = append(granted, a)
	}
	now := time.Now()
	return s.sign(map[string]any{
		"iss": Issuer, "sub": user, "aud": Service, "jti": rand.Text(), "access": granted,
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(s.opts.Life).Unix(),
	})
}

func (s *Server) may(user, repository, action string) bool {
	for name, actions := range s.opts.Users[user].May {
		if (name == repository || strings.HasSuffix(name, "/") && strings.HasPrefix(repository, name)) && slices.Contains(actions, action) {
			return true
		}
	}
	return false
}

// sign returns a JSON Web Token (RFC 7519) with the given claims. Its header contains the server's certificate.
func (s *Server) sign(claims any) (string, error) {
	header := map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(s.cert)}}
	var parts []string
	for _, part := range []any{header, claims} {
		b, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(b))
	}
	signed := strings.Join(parts, ".")
	digest := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	v.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": "UNAUTHORIZED", "message": message}}})
}
