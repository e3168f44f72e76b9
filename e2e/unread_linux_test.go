package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/usage"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestUnreadDownloads shows that a download from the embedded registry that its client does not read takes at most 128
// KiB of the gateway's memory: of a provider's package, of a module's zip, and of a blob at /v2/.
func TestUnreadDownloads(t *testing.T) {
	t.Parallel()
	const streams, allowed = 256, 128 << 10
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	folder, content := t.TempDir(), make([]byte, 1<<20)
	rand.Read(content)
	clients.Must(t, os.WriteFile(filepath.Join(folder, "main.tf"), nil, 0o600))
	clients.Must(t, os.WriteFile(filepath.Join(folder, "content"), content, 0o600))
	s.mustRun("module", "push", folder, "--as", world.Host+"/acme/net/aws@1.0.0", "--data", s.data)
	gateway := s.serve("--data", s.data)
	p := hostPackage(t, s.null) // larger than the buffers of a connection
	for name, path := range map[string]string{
		"package": fmt.Sprintf("/providers/%s/%s/%s_%s/%s", world.Null, nullVersion, p.OS, p.Arch, p.Filename),
		"module":  "/hosts/" + world.Host + "/v1/modules/acme/net/aws/1.0.0/net-1.0.0.zip",
		"blob":    "/v2/" + world.Null + "/blobs/sha256:" + p.SHA256,
	} {
		url := strings.TrimSuffix(gateway.Root, "/") + path
		var cost int64
		for _, n := range []int{1, streams} { // the first makes the process allocate what it allocates only once
			before := settled(t, gateway.PID())
			end, err := usage.Unread(t.Context(), s.CA.CertPool(), n, url)
			defer end()
			clients.Must(t, err)
			cost = (settled(t, gateway.PID()).Memory - before.Memory) / int64(n)
		}
		t.Logf("%s: %d KiB each", name, cost>>10)
		if cost > allowed {
			t.Errorf("%s: %d KiB each, more than %d", name, cost>>10, allowed>>10)
		}
	}
}
