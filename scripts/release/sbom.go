package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// These are the parts of CycloneDX 1.5 that an SBOM of Holdfast uses.
type (
	bom struct {
		Format       string          `json:"bomFormat"`
		SpecVersion  string          `json:"specVersion"`
		Serial       string          `json:"serialNumber"`
		Version      int             `json:"version"`
		Metadata     bomMetadata     `json:"metadata"`
		Components   []bomComponent  `json:"components"`
		Dependencies []bomDependency `json:"dependencies"`
	}
	bomMetadata struct {
		Timestamp string       `json:"timestamp"`
		Component bomComponent `json:"component"`
	}
	bomComponent struct {
		Type       string         `json:"type"`
		Ref        string         `json:"bom-ref"`
		Name       string         `json:"name"`
		Version    string         `json:"version"`
		Hashes     []bomHash      `json:"hashes,omitempty"`
		Licences   []bomLicence   `json:"licenses,omitempty"`
		PURL       string         `json:"purl,omitempty"`
		Properties []bomProperty  `json:"properties,omitempty"`
		Components []bomComponent `json:"components,omitempty"`
	}
	bomHash struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	}
	bomLicence struct {
		Licence bomLicenceID `json:"license"`
	}
	bomLicenceID struct {
		ID   string `json:"id,omitempty"`
		Name string `json:"name,omitempty"`
	}
	bomProperty struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	bomDependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// sbom writes the list of the contents of a target's programs: Go, and each module with its licence.
// The list omits the dependencies between modules, because the programs do not contain them.
func (r *release) sbom(t target, c *contents) error {
	b := bom{Format: "CycloneDX", SpecVersion: "1.5", Version: 1}
	b.Metadata.Timestamp = r.date.Format(time.RFC3339)
	own := bomComponent{
		Type: "application", Ref: "holdfast", Name: "holdfast", Version: r.version, PURL: purl("holdfast", r.version),
		Licences:   licences("Apache-2.0"),
		Properties: []bomProperty{{"holdfast:target", t.String()}},
	}
	if r.commit != "" {
		own.Properties = append(own.Properties, bomProperty{"holdfast:commit", r.commit})
	}
	std := bomComponent{
		Type: "library", Ref: "std", Name: "std", Version: c.goes, PURL: purl("std", strings.TrimPrefix(c.goes, "go")),
		Licences: licences("BSD-3-Clause"),
	}
	b.Components = append(b.Components, std)
	var all []string
	for _, name := range programs {
		all = append(all, programRef(name))
	}
	b.Dependencies = append(b.Dependencies, bomDependency{own.Ref, all})
	digest := sha256.New()
	for _, name := range programs {
		sum, err := sumFile(r.program(t, name))
		if err != nil {
			return err
		}
		fmt.Fprintln(digest, sum)
		own.Components = append(own.Components, bomComponent{
			Type: "application", Ref: programRef(name), Name: name, Version: r.version, Hashes: []bomHash{{"SHA-256", sum}},
		})
		needs := []string{std.Ref}
		for _, m := range c.programs[name] {
			needs = append(needs, m.String())
		}
		b.Dependencies = append(b.Dependencies, bomDependency{programRef(name), needs})
	}
	for _, m := range c.all {
		id, _, err := licence(m.dir)
		if err != nil {
			return err
		}
		b.Components = append(b.Components, bomComponent{
			Type: "library", Ref: m.String(), Name: m.path, Version: m.version, PURL: purl(m.path, m.version), Licences: licences(id),
			// The sum is the hash of a list of the files' hashes, so it is not a hash of the
			// component.
			Properties: []bomProperty{{"holdfast:go.sum", m.sum}},
		})
	}
	for _, c := range b.Components {
		b.Dependencies = append(b.Dependencies, bomDependency{Ref: c.Ref})
	}
	b.Metadata.Component = own
	b.Serial = uuid(digest.Sum(nil))
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(r.name(t)+".cdx.json"), append(data, '\n'), 0o644)
}

// programRef returns the reference of a program. It differs from that of the whole, whose name one of the programs has.
func programRef(name string) string { return "bin/" + name }

func licences(id string) []bomLicence {
	if id == unknown {
		return []bomLicence{{bomLicenceID{Name: id}}}
	}
	return []bomLicence{{bomLicenceID{ID: id}}}
}

// purl returns a Go module's package URL, which must be in lower case.
func purl(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// uuid converts a digest to a UUID of version 8 (RFC 9562), so that the same programs have the same
// UUID.
func uuid(digest []byte) string {
	u := digest[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
