package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

var (
	at      = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	entries = []entry{{"b/c", 0o644, []byte("text")}, {"program", 0o755, bytes.Repeat([]byte{0x7f}, 100)}, {"a", 0o644, nil}}
)

func TestArchivesDoNotDependOnOrder(t *testing.T) {
	reversed := slices.Clone(entries)
	slices.Reverse(reversed)
	for name, pack := range map[string]func(string, []entry, time.Time) ([]byte, error){"tar.gz": tarball, "zip": zipfile} {
		one, err := pack("folder", entries, at)
		if err != nil {
			t.Fatal(err)
		}
		other, err := pack("folder", reversed, at.In(time.FixedZone("", 7200)))
		if err != nil || !bytes.Equal(one, other) {
			t.Errorf("%s: two archives of the same differ, %v", name, err)
		}
	}
}

func TestTarball(t *testing.T) {
	data, err := tarball("folder", entries, at)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !unpacked.ModTime.IsZero() || unpacked.Name != "" {
		t.Errorf("gzip header %+v", unpacked.Header)
	}
	var names []string
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(at) || (h.Mode == 0o755) != (h.Name == "folder/program") {
			t.Errorf("%+v", h)
		}
	}
	if want := []string{"folder/a", "folder/b/c", "folder/program"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestZipfile(t *testing.T) {
	data, err := zipfile("folder", entries, at)
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.File) != 3 || r.File[2].Name != "folder/program" || r.File[2].Mode() != 0o755 || !r.File[0].Modified.Equal(at.Truncate(2*time.Second)) {
		t.Errorf("%+v", r.File)
	}
}

const (
	bsd3 = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that ... to endorse or\n promote products derived from this software without"
	bsd2 = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted provided that the following conditions are met"
	mit  = "Permission is hereby granted, free of charge, to any person obtaining a copy of ... THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT"
	gpl  = "GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n Everyone is permitted to copy and distribute verbatim copies\n of this license document"
)

func TestRecognise(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{bsd3, "BSD-3-Clause"},
		{bsd2, "BSD-2-Clause"},
		{mit, "MIT"},
		{mit + "\n\n" + bsd3, "BSD-3-Clause MIT"},
		{"                 Apache License\n           Version 2.0, January 2004\n TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION", "Apache-2.0"},
		{gpl, "GPL"},
		{"All rights reserved.", ""},
	} {
		found := recognise(c.text)
		slices.Sort(found)
		if got := strings.Join(found, " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestTableRefuses(t *testing.T) {
	if _, err := table([]module{{Path: "example.com/free", Licence: "BSD-3-Clause AND MIT"}}); err != nil {
		t.Error(err)
	}
	for _, licence := range []string{"GPL", "MIT AND BUSL-1.1", ""} {
		if _, err := table([]module{{Path: "example.com/other", Licence: licence}}); err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%q: %v", licence, err)
		}
	}
}

func TestSBOM(t *testing.T) {
	b := &builder{options: options{version: "v1.2.3"}, time: at}
	data, err := sbom(b, []module{
		{Path: standard, Version: "1.26.8", Licence: "BSD-3-Clause"},
		{Path: "example.com/a", Version: "v1.0.0+x", Sum: "h1:" + strings.Repeat("A", 43) + "=", Licence: "Apache-2.0 AND MIT"},
	}, "linux_amd64")
	if err != nil {
		t.Fatal(err)
	}
	var bom cyclonedx.BOM
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Timestamp != "2026-01-02T03:04:05Z" || bom.Metadata.Component.Version != "v1.2.3" || bom.SerialNumber != "" {
		t.Errorf("%+v", bom.Metadata)
	}
	c := (*bom.Components)[1]
	if c.PackageURL != "pkg:golang/example.com/a@v1.0.0%2Bx" || (*c.Hashes)[0].Value != strings.Repeat("0", 64) || (*c.Licenses)[0].Expression != "Apache-2.0 AND MIT" {
		t.Errorf("%+v", c)
	}
}
