package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// issuer is an OpenID Connect issuer with the code flow and PKCE.
type issuer struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey

	mu    sync.Mutex
	asked map[string]url.Values // authorization requests, by code
	n     int
	token string // the token that was issued last
}

func newIssuer(s *scene) *issuer {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	i := &issuer{t: s.t, key: key, asked: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.exchange)
	i.Server = httptest.NewUnstartedServer(mux)
	if i.TLS, err = s.CA.ServerConfig("localhost"); err != nil {
		s.t.Fatal(err)
	}
	i.StartTLS()
	i.URL = "https://localhost:" + i.URL[strings.LastIndex(i.URL, ":")+1:]
	s.t.Cleanup(i.Close)
	return i
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// callback matches the redirect URIs of clients.
var callback = regexp.MustCompile(`^http://localhost:(\d{5})/login$`)

// authorize accepts any user, and redirects the browser to the client with a code.
func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back := q.Get("redirect_uri")
	port := callback.FindStringSubmatch(back)
	if q.Get("client_id") != "terraform-cli" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		q.Get("audience") != "providers" || q.Get("scope") != "openid groups" || q.Get("state") == "" ||
		port == nil || port[1] < "20000" || port[1] >= "20100" {
		i.t.Errorf("the authorization request has %v", q)
		http.Error(w, "not so", http.StatusBadRequest)
		return
	}
	i.mu.Lock()
	i.n++
	code := fmt.Sprint("code-", i.n)
	i.asked[code] = q
	i.mu.Unlock()
	http.Redirect(w, r, back+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

// exchange exchanges a code for a token. The client must be the client that requested the code.
func (i *issuer) exchange(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	code := r.PostFormValue("code")
	asked := i.asked[code]
	delete(i.asked, code)
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if asked == nil || base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") ||
		r.PostFormValue("client_id") != "terraform-cli" || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") {
		i.t.Errorf("the token request has %v", r.PostForm)
		http.Error(w, "not so", http.StatusBadRequest)
		return
	}
	i.token = i.sign(map[string]any{
		"iss": i.URL, "aud": "providers", "sub": "ada", "groups": []string{"engineering"}, "exp": time.Now().Add(time.Hour).Unix(),
	})
	answerJSON(w, map[string]any{"access_token": i.token, "token_type": "Bearer", "expires_in": 3600})
}

func (i *issuer) sign(claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "1"}}, nil)
	if err != nil {
		panic(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return out
}

// TestLogin shows that the real clients can log in, and install with the token that they have saved.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	i := newIssuer(s)
	config := filepath.Join(t.TempDir(), "ocibridge.hcl")
	text := fmt.Sprintf(`gateway {
  oidc "people" {
    issuer   = %[1]q
    audience = "providers"
    rule {
      claims = { groups = "engineering" }
    }
  }
  login {
    client = "terraform-cli"
    authz  = "%[1]s/authorize?audience=providers"
    token  = "%[1]s/token"
    ports  = [20000, 20100]
    scopes = ["openid", "groups"]
  }
}
`, i.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g := s.serve("--data", s.data, "--config", config)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user("", nullVersion)
		// If TF_CLI_CONFIG_FILE names another file, clients do not read saved tokens.
		ws.Env["TF_CLI_CONFIG_FILE"] = ""
		clients.Must(t, os.WriteFile(filepath.Join(ws.Home, ".terraformrc"), []byte(world.NetworkMirror(g.URL)), 0o600))
		// Terraform saves no token if its folder does not exist. Usually, its update check creates the folder.
		clients.Must(t, os.MkdirAll(filepath.Join(ws.Home, ".terraform.d"), 0o700))
		ws.MustFail(t, client, "init", "-no-color")
		s.logIn(ws, client, authority(g))
		filed, err := os.ReadFile(filepath.Join(ws.Home, ".terraform.d", "credentials.tfrc.json"))
		if err != nil || !strings.Contains(string(filed), i.token) || !strings.Contains(string(filed), authority(g)) {
			t.Errorf("%s: filed: %v, %s", client.Name, err, filed)
		}
		ws.MustRun(t, client, "init", "-no-color")
		// exec passes the saved token on.
		clients.Must(t, os.Remove(filepath.Join(ws.Home, ".terraformrc")))
		if got := s.execIn(ws, "--data", s.data, "--", "sh", "-c", `cat "$TF_CLI_CONFIG_FILE"; "$0" init -no-color`, client.Path); got.status != 0 || !strings.Contains(got.stdout, i.token) {
			t.Errorf("exec after a login: %+v", got)
		}
	}
	if !strings.Contains(g.Log(), `subject="oidc people ada"`) {
		t.Errorf("the log:\n%s", g.Log())
	}
	wantNoSecrets(t, g, i.token, "code_challenge", "code-")
}

var authorizeURL = regexp.MustCompile(`https://localhost:\d+/authorize\?\S+`)

// logIn runs the client's command "login HOST". The client finds no browser, so logIn does what the browser
// would do.
func (s *scene) logIn(ws *clients.Workspace, client clients.Client, host string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), clients.DefaultTimeout)
	defer cancel()
	ws.Env["PATH"] = s.t.TempDir()
	cmd := ws.Command(ctx, client, "login", host)
	delete(ws.Env, "PATH")
	cmd.Stdin = strings.NewReader("yes\n")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		link := authorizeURL.FindString(lines.Text())
		if link == "" {
			continue
		}
		browser := s.CA.HTTPClient()
		resp, err := browser.Get(link)
		if errors.Is(err, io.EOF) {
			continue // the client stops its server when it has the code, possibly before the browser has received the page
		}
		if err != nil {
			s.t.Errorf("the browser: %v", err)
			break
		}
		if resp.StatusCode != http.StatusOK {
			s.t.Errorf("the browser: %s", resp.Status)
		}
		resp.Body.Close()
		browser.CloseIdleConnections()
	}
	rest, _ := io.ReadAll(stdout)
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("%s login: %v\n%s%s", client.Name, err, out.String(), rest)
	}
}
