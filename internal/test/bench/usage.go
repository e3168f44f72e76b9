package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	usageLines  = 2_000_000
	usageWanted = 0.2 // the target for the ratio to jq's time
	usageMemory = 64 << 20
	// usageFilter is how jq finds out who has installed which version. It then needs sort and uniq, which are not measured.
	usageFilter = `select(.msg == "request" and .sent == "whole") | "\(.provider) \(.version) \(.subject)"`
)

// usage compares "ocibridge usage" of a log of two million lines with jq, and with wc, which only counts the lines. One in
// three lines names a version.
func (b *bench) usage() error {
	dir, err := b.subdir("usage")
	if err != nil {
		return err
	}
	log := filepath.Join(dir, "serve.log")
	defer os.Remove(log)
	if err := writeRequests(log); err != nil {
		return err
	}
	var took, jq, wc []time.Duration
	for range runs {
		for _, m := range []struct {
			times *[]time.Duration
			cmd   func(context.Context) *exec.Cmd
		}{
			{&took, func(ctx context.Context) *exec.Cmd { return b.ws.Command(ctx, b.bridge, "usage", "--quiet", log) }},
			{&jq, func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "jq", "-r", usageFilter, log) }},
			{&wc, func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "wc", "-l", log) }},
		} {
			start := time.Now()
			if err := m.cmd(b.ctx).Run(); err != nil {
				return err
			}
			*m.times = append(*m.times, time.Since(start))
		}
	}
	r := row{
		what: "usage of a log of 2,000,000 lines", figure: fmt.Sprintf("%.2f s", median(took).Seconds()), ratio: medianRatio(took, jq),
		than: fmt.Sprintf("jq's time; wc takes %.2f s", median(wc).Seconds()), wanted: fmt.Sprintf("<= %.2f", usageWanted),
	}
	r.reached = r.ratio <= usageWanted
	b.rows = append(b.rows, r)
	peak, err := peakOf(b.ws.Command(b.ctx, b.bridge, "usage", "--quiet", log))
	if err != nil {
		return err
	}
	b.rows = append(b.rows, row{
		what: "memory: usage of a log of 2,000,000 lines", figure: fmt.Sprintf("%d MiB", peak>>20), ratio: float64(peak) / usageMemory, than: "64 MiB",
		wanted: "< 1.00", reached: peak < usageMemory,
	})
	return nil
}

// peakOf runs a command, and returns its peak resident memory in bytes (Linux).
func peakOf(cmd *exec.Cmd) (peak int64, err error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if now, err := highWater(cmd.Process.Pid); err == nil {
			peak = now // the peak so far; it cannot be read after the end
		}
		select {
		case err := <-ended:
			return peak, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// writeRequests writes a log in the JSON format: lists of versions, descriptions and packages of 50 providers with 20
// versions each, which 40 tokens request.
func writeRequests(name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range usageLines {
		n := i / 6 // the number of a client's run
		provider, version := fmt.Sprintf("registry.acme.example/acme/widget%d", n%50), fmt.Sprintf("6.%d.%d", n/50%5, n/250%4)
		path, uses := "/providers/"+provider+"/index.json", ""
		switch i % 6 {
		case 1:
			path, uses = "/providers/"+provider+"/"+version+".json", fmt.Sprintf(`,"provider":%q,"version":%q`, provider, version)
		case 2:
			path = fmt.Sprintf("/providers/%s/%s/linux_amd64/terraform-provider-widget_%[2]s_linux_amd64.zip", provider, version)
			uses = fmt.Sprintf(`,"provider":%q,"version":%q,"sent":"whole","capability":"REDACTED"`, provider, version)
		}
		fmt.Fprintf(w, `{"time":%q,"level":"INFO","msg":"request","method":"GET","path":%q,"status":200,"bytes":1000,"duration":0.002,"client":"10.0.0.%d:40000",`+
			`"agent":"OpenTofu/1.10.6 (+https://opentofu.org)","request_id":"R%025d"%s,"subject":"token team-%d"}`+"\n",
			at.Add(time.Duration(i)*4*time.Second).Format(time.RFC3339Nano), path, n%250, i, uses, n%40)
	}
	return w.Flush()
}
