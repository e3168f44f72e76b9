package quirks_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// TestOwnerBehindAPolicy shows that if a policy forbids reading the newest versions, a push still recognizes
// by an old version that the repository belongs to another provider.
func TestOwnerBehindAPolicy(t *testing.T) {
	b := newBench(t, profile(t, "distribution"))
	b.mustPush("1.0.0", false, false)
	_, store, err := b.repository(t.Context(), widget)
	if err != nil {
		t.Fatal(err)
	}
	of, err := artifact.Read(t.Context(), store, widget, provider.MustParseVersion("1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	of.Owner = provider.MustParseAddress(host + "/acme-inc/gadget")
	for _, v := range []string{"1.0.0", "3.0.0", "3.1.0", "3.2.0"} {
		of.Version = provider.MustParseVersion(v)
		index, err := artifact.EncodeIndex(*of)
		if err == nil {
			err = store.PushReference(t.Context(), index.Descriptor, bytes.NewReader(index.Data), v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.requests.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/3.") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPreconditionFailed)
		io.WriteString(w, `{"errors":[{"code":"PROJECTPOLICYVIOLATION","message":"The image is not signed by cosign."}]}`)
		return true
	})
	b.publish("2.0.0")
	if _, err := b.push("2.0.0"); !errors.Is(err, repo.ErrOccupied) || !strings.Contains(err.Error(), "its tag 1.0.0") {
		t.Errorf("push to the repository of another provider: %v", err)
	}
}
