package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	capacityRequests  = 20000
	capacityDownloads = 10
	capacityProviders = 100 // providers whose documents are requested once, to measure the catalog in memory
	// ticksPerSecond is the unit of /proc/PID/stat, which is the same for all programs on Linux.
	ticksPerSecond = 100
)

// capacity measures what an operator needs to size a gateway: requests per second of CPU time, and the memory of
// cached answers. CPU time is independent of other load on the machine.
func (b *bench) capacity() error {
	fake, gateway, process, stop, err := b.startCatalogGateway()
	if err != nil {
		return err
	}
	defer stop()
	c := b.connect(false)
	defer c.close()
	base := gateway.url + "/" + catalogProvider(0).Path()
	for _, document := range []struct{ what, path string }{{"index.json", "index.json"}, {"version.json", catalogVersion(0).String() + ".json"}} {
		took, _, err := c.cpuTime(b.ctx, process.PID(), base+"/"+document.path, capacityRequests)
		if err != nil {
			return err
		}
		b.rows = append(b.rows, capacityRow(document.what, fmt.Sprintf("%.0f/s per core", capacityRequests/took.Seconds())))
	}
	took, bytes, err := c.cpuTime(b.ctx, process.PID(), gateway.url+"/"+fake.bigPath(0), capacityDownloads)
	if err != nil {
		return err
	}
	b.rows = append(b.rows, capacityRow("cached archive", fmt.Sprintf("%.0f MB/s per core", float64(bytes)/1e6/took.Seconds())))
	for p := range capacityProviders {
		url := gateway.url + "/" + catalogProvider(p).Path()
		for _, document := range []string{"/index.json", "/" + catalogVersion(0).String() + ".json"} {
			if _, err := c.get(b.ctx, url+document, io.Discard); err != nil {
				return err
			}
		}
	}
	cached, err := c.gauge(b.ctx, strings.TrimSuffix(gateway.url, "/providers")+"/metrics", "ocibridge_catalog_memory_bytes")
	if err != nil {
		return err
	}
	b.rows = append(b.rows, capacityRow(fmt.Sprintf("cached answers of a provider with %d versions, one of them requested", catalogVersions),
		fmt.Sprintf("%.1f KiB", cached/capacityProviders/(1<<10))))
	return nil
}

func capacityRow(what, figure string) row {
	return row{what: "capacity: " + what, figure: figure, than: nothing, wanted: nothing}
}

// cpuTime requests a resource once, then n times. It returns the CPU time that the process took for the n
// requests, and the bytes of their bodies.
func (c *client) cpuTime(ctx context.Context, pid int, url string, n int) (took time.Duration, bytes int64, err error) {
	if _, err := c.get(ctx, url, io.Discard); err != nil {
		return 0, 0, err
	}
	before, err := usedCPU(pid)
	if err != nil {
		return 0, 0, err
	}
	for range n {
		resp, err := c.get(ctx, url, io.Discard)
		if err != nil {
			return 0, 0, err
		}
		bytes += resp.ContentLength
	}
	after, err := usedCPU(pid)
	return after - before, bytes, err
}

// usedCPU returns the CPU time of a running process so far (Linux).
func usedCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("the CPU time of a process is not available here: %w", err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name in parentheses may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("no CPU time in %q", stat)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticksPerSecond, err
}

// gauge returns the value of a metric without labels.
func (c *client) gauge(ctx context.Context, url, name string) (float64, error) {
	var metrics strings.Builder
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(&metrics, resp.Body); err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(metrics.String())
	if m == nil {
		return 0, fmt.Errorf("no %s at %s", name, url)
	}
	return strconv.ParseFloat(m[1], 64)
}
