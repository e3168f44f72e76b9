package origin

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"
)

// TestServicesAreDiscoveredAnew shows that cached services expire, because a gateway
// may run for months.
func TestServicesAreDiscoveredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		r := NewRegistry(RegistryOptions{Rediscover: func() *disco.Disco { made++; return disco.New() }})
		for range 3 {
			first := r.servicesFor("registry.acme.example")
			time.Sleep(rediscoverAfter - time.Second)
			if r.servicesFor("registry.acme.example") != first {
				t.Error("discovered again too early")
			}
			time.Sleep(time.Second)
		}
		if r.servicesFor("registry.acme.example"); made != 3 {
			t.Errorf("discovered again %d times", made)
		}
		forever := NewRegistry(RegistryOptions{})
		first := forever.servicesFor("registry.acme.example")
		time.Sleep(rediscoverAfter)
		if forever.servicesFor("registry.acme.example") != first {
			t.Error("Services was replaced, although Rediscover is nil")
		}
	})
}

// TestMadeUpHostsTakeLittle shows that the number of hosts with cached services is
// limited, because clients of a gateway may name any number of hosts.
func TestMadeUpHostsTakeLittle(t *testing.T) {
	made := 0
	r := NewRegistry(RegistryOptions{Rediscover: func() *disco.Disco { made++; return disco.New() }})
	for i := range 3 * maxDiscovered {
		host := svchost.Hostname(fmt.Sprintf("h%d.acme.example", i))
		if first := r.servicesFor(host); r.servicesFor(host) != first {
			t.Fatal("discovered again for the same host")
		}
		if len(r.hosts) > maxDiscovered {
			t.Fatalf("%d hosts are known", len(r.hosts))
		}
	}
	if made != 2 {
		t.Errorf("discovered again %d times", made)
	}
}
