package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

const name = "github.com/ocibridge/ocibridge"

// sbom returns the software bill of materials of the program for a platform, in the
// format CycloneDX 1.6. It lists the modules that the linker recorded in the program.
func sbom(b *builder, modules []module, platform string) ([]byte, error) {
	bom := cyclonedx.NewBOM()
	bom.SpecVersion = cyclonedx.SpecVersion1_6
	main := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, BOMRef: purl(name, b.version), Name: "ocibridge", Version: b.version, PackageURL: purl(name, b.version),
		Licenses:   licensed("Apache-2.0"),
		Properties: &[]cyclonedx.Property{{Name: "ocibridge:platform", Value: platform}},
	}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: b.time.Format(time.RFC3339), Component: &main}
	var components []cyclonedx.Component
	var refs []string
	for _, m := range modules {
		c := cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl(m.Path, m.Version), Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version),
			Licenses: licensed(m.Licence),
		}
		if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
			raw, err := base64.StdEncoding.DecodeString(sum)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.Path, err)
			}
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", raw)}}
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}

func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func licensed(expression string) *cyclonedx.Licenses {
	if strings.Contains(expression, " AND ") {
		return &cyclonedx.Licenses{{Expression: expression}}
	}
	return &cyclonedx.Licenses{{License: &cyclonedx.License{ID: expression}}}
}
