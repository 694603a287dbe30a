package model

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Cloud is a cloud that serves models of another vendor to its own customers.
type Cloud string

// The clouds whose addresses the built-in providers know.
const (
	Azure   Cloud = "Azure OpenAI"
	Bedrock Cloud = "Amazon Bedrock"
	Vertex  Cloud = "Google Vertex AI"
)

// CloudAddress is a base URL of a provider's models in a cloud. The zero value is any other address.
type CloudAddress struct {
	Cloud Cloud

	Base    string // without the part of the path that the cloud prescribes
	Region  string // of Bedrock; the location of Vertex
	Project string // of Vertex
	Version string // the api-version of Azure; empty for its API v1, which needs none

	// Mantle means the endpoint of Bedrock with Anthropic's own requests and streams. The older endpoint has those of
	// AWS.
	Mantle bool
}

var (
	azureHost   = regexp.MustCompile(`^[a-z0-9-]+\.(openai\.azure\.com|cognitiveservices\.azure\.com|services\.ai\.azure\.com)$`)
	mantleHost  = regexp.MustCompile(`^(?:[a-z0-9-]+\.)?bedrock-mantle\.([a-z0-9-]+)\.(?:vpce\.amazonaws\.com|api\.aws)$`)
	bedrockHost = regexp.MustCompile(`^(?:[a-z0-9-]+\.)?bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.(?:(?:vpce\.)?amazonaws\.com(?:\.cn)?|api\.aws)$`)
	vertexHost  = regexp.MustCompile(`^(?:[a-z0-9-]+-)?aiplatform(?:\.[a-z]+\.rep)?\.googleapis\.com$`)
	vertexPath  = regexp.MustCompile(`^(?:/v1(?:beta1)?)?/projects/([a-z0-9][a-z0-9:.-]*)/locations/([a-z0-9-]+)$`)
	azureDate   = regexp.MustCompile(`^20\d\d-\d\d-\d\d(-preview)?$`)
)

// CloudAt returns the cloud at a base URL that serves a provider's models, or the zero value for any other address. The
// error names the form of the addresses of that cloud.
func CloudAt(provider, base string) (CloudAddress, error) {
	u, err := url.Parse(base)
	if err != nil {
		return CloudAddress{}, nil //nolint:nilerr // not an address of a cloud
	}
	host, path := strings.ToLower(u.Hostname()), strings.TrimRight(u.Path, "/")
	at := CloudAddress{Base: "https://" + u.Host}
	switch {
	case provider == "openai" && azureHost.MatchString(host):
		at.Cloud, at.Version = Azure, u.Query().Get("api-version")
		switch {
		case at.Version == "" && path == "/openai/v1":
			at.Base += path
		case azureDate.MatchString(at.Version) && (path == "" || path == "/openai"):
		default:
			err = fmt.Errorf("the address of Azure OpenAI is not valid: write https://%s/openai/v1, or https://%s?api-version=2025-04-01-preview", host, host)
		}
	case provider == "anthropic" && bedrockHost.MatchString(host):
		at.Cloud, at.Region = Bedrock, bedrockHost.FindStringSubmatch(host)[1]
		if path != "" {
			err = fmt.Errorf("the address of Amazon Bedrock has a path: write https://%s", host)
		}
	case provider == "anthropic" && mantleHost.MatchString(host):
		at.Cloud, at.Region, at.Mantle = Bedrock, mantleHost.FindStringSubmatch(host)[1], true
		if at.Base += path; path != "/anthropic" {
			err = fmt.Errorf("the address of Amazon Bedrock is not valid: write https://%s/anthropic", host)
		}
	case (provider == "anthropic" || provider == "gemini") && vertexHost.MatchString(host):
		at.Cloud = Vertex
		if m := vertexPath.FindStringSubmatch(path); m != nil {
			at.Project, at.Region = m[1], m[2]
		} else {
			err = fmt.Errorf("the address of Google Vertex AI is not valid: write https://%s/v1/projects/PROJECT/locations/LOCATION", host)
		}
	default:
		return CloudAddress{}, nil
	}
	valid := "https://" + host + u.Path
	if at.Version != "" {
		valid += "?api-version=" + at.Version
	}
	switch {
	case err != nil:
	case u.User != nil:
		err = fmt.Errorf("the address of %s has a user: write %s, and give the credentials as the model's api_key", at.Cloud, valid)
	case u.Scheme != "https":
		err = fmt.Errorf("the address of %s begins with %s: write %s", at.Cloud, u.Scheme, valid)
	}
	return at, err
}

// CloudAt is the function CloudAt with a *Error, for adapters.
func (r Request) CloudAt(provider, base string) (CloudAddress, error) {
	at, err := CloudAt(provider, base)
	if err != nil {
		return at, &Error{Class: InvalidRequest, Provider: provider, Message: "base_url: " + err.Error()}
	}
	return at, nil
}

// LoginFailed returns the *Error for a call that got no credentials of a cloud because of err. Its class is Auth if
// refused, which says that the cloud refused the secret or that the secret is not a credential, and Transport
// otherwise. If ctx has ended, the error is that of Interrupted. key is the value of the secret, which LoginFailed
// removes from the text.
func LoginFailed(ctx context.Context, provider, key string, refused bool, err error) *Error {
	if cause := ctx.Err(); cause != nil {
		return Interrupted(provider, cause)
	}
	class := Transport
	if refused {
		class = Auth
	}
	return &Error{Class: class, Provider: provider, Message: Redact(err.Error(), key)}
}

// inCloud reports whether a cloud serves the model of c.
func inCloud(c Choice, cloud Cloud) bool {
	at, _ := CloudAt(c.Provider, c.BaseURL) // the check of base_url reports the error
	return at.Cloud == cloud
}
