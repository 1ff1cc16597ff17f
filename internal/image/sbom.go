package image

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	License       string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID           string         `json:"SPDXID"`
	Name         string         `json:"name"`
	Version      string         `json:"versionInfo,omitempty"`
	Location     string         `json:"downloadLocation"`
	Analyzed     bool           `json:"filesAnalyzed"`
	License      string         `json:"licenseDeclared"`
	Concluded    string         `json:"licenseConcluded"`
	Copyright    string         `json:"copyrightText"`
	ExternalRefs []spdxExternal `json:"externalRefs,omitempty"`
}

type spdxExternal struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Kind string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	documentID  = "SPDXRef-DOCUMENT"
	noAssertion = "NOASSERTION"
)

// SBOM lists the modules that a program was built from, as an SPDX 2.3 document in JSON. programDigest tells documents of different programs apart.
func SBOM(info *debug.BuildInfo, version, programDigest string, created time.Time) ([]byte, error) {
	main := modulePackage(&debug.Module{Path: info.Main.Path, Version: version}, "Apache-2.0")
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: "outlane " + version,
		Namespace:     "https://github.com/outlane/outlane/spdx/" + url.PathEscape(version) + "/" + strings.TrimPrefix(programDigest, "sha256:"),
		Creation:      spdxCreation{Created: created.UTC().Format(time.RFC3339), Creators: []string{"Tool: outlane-image"}},
		Packages:      []spdxPackage{main},
		Relationships: []spdxRelationship{{documentID, "DESCRIBES", main.ID}},
	}
	parts := []*debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		parts = append(parts, dep)
	}
	for _, part := range parts {
		p := modulePackage(part, noAssertion)
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, spdxRelationship{main.ID, "DEPENDS_ON", p.ID})
	}
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write the list of modules: %w", err)
	}
	return append(text, '\n'), nil
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.]+`)

func modulePackage(m *debug.Module, license string) spdxPackage {
	purl := "pkg:golang/" + m.Path
	if m.Version != "" {
		purl += "@" + url.PathEscape(m.Version)
	}
	return spdxPackage{
		ID: "SPDXRef-Package-" + notInID.ReplaceAllString(m.Path+"-"+m.Version, "-"), Name: m.Path, Version: m.Version,
		Location: noAssertion, License: license, Concluded: license, Copyright: noAssertion,
		ExternalRefs: []spdxExternal{{"PACKAGE-MANAGER", "purl", purl}},
	}
}
