package model

import (
	"maps"
	"net"
	"slices"
)

// Spec describes a provider, for gateways and workers that read definitions. The zero value is a provider whose models
// have names.
type Spec struct {
	// Scripted means that the provider plays the responses in the definition: its models need no name.
	Scripted bool

	// APIs are the APIs that a definition may choose; empty means that the provider has only one.
	APIs []API

	// Takes lists the settings that the provider's models accept. nil accepts all; the provider then reports those that
	// it ignores.
	Takes []Taken

	// Files lists the files that the provider's models accept. nil accepts all; the adapter then reports those that it
	// cannot send. FileBytes is the maximum number of bytes of all files of one request, before base64; 0 means
	// unknown.
	Files     []TakenFile
	FileBytes int64

	// Hosted lists the tools that the provider runs.
	Hosted []Hosted

	// Extra lists the fields of a request's body, as paths with dots, that model.extra of a definition may set without
	// the operator's permission. Own lists the fields that it may never set: those that Turnpike sets itself, and those
	// that would make the provider store data, run tools or call other servers.
	Extra, Own []string

	// Host is the "host:port" of the provider's own API, to which requests without another address go; empty means
	// unknown. A secret that is bound to hosts is sent there only if Host is one of them.
	Host string

	// Key names the workers' secret that is the key of models without a key and an address of their own; empty means
	// that such models have none. A value in the environment variable Key is sent only to Host and KeyHosts, also if a
	// definition names the secret.
	Key string

	// KeyHosts are further hosts to which Key may be sent, such as "*.api.openai.com".
	KeyHosts []string

	// System is the provider's name in the OpenTelemetry conventions for generative AI; empty means its name in
	// definitions.
	System string
}

// Specs maps the names of providers in definitions to their specs.
type Specs map[string]Spec

// Names returns the names of the providers, sorted.
func (s Specs) Names() []string { return slices.Sorted(maps.Keys(s)) }

// HostsOfKey returns the hosts, without ports, to which providers' own key of a name may be sent; nil if no provider
// has a key of that name.
func (s Specs) HostsOfKey(key string) (hosts []string) {
	for _, name := range s.Names() {
		spec := s[name]
		if spec.Key != key || key == "" {
			continue
		}
		host, _, err := net.SplitHostPort(spec.Host)
		if err != nil {
			host = spec.Host
		}
		hosts = append(append(hosts, host), spec.KeyHosts...)
	}
	return hosts
}

// BuiltinSpecs returns the providers that ship with Turnpike, as a new map to which callers may add others.
func BuiltinSpecs() Specs { return maps.Clone(builtin) }

// builtin are the providers that ship with Turnpike. Nothing modifies the map.
var builtin = Specs{
	"scripted": {Scripted: true, Hosted: scriptedHosted},
	"openai": {
		APIs: []API{APIResponses, APIChat}, Host: "api.openai.com:443", Key: "OPENAI_API_KEY", KeyHosts: []string{"*.api.openai.com"},
		Takes: openAITakes, Hosted: openAIHosted, Files: openAIFiles, FileBytes: openAIFileBytes, Extra: openAIExtra, Own: openAIOwn,
	},
	"anthropic": {
		Host: "api.anthropic.com:443", Key: "ANTHROPIC_API_KEY",
		Takes: anthropicTakes, Hosted: anthropicHosted, Files: anthropicFiles, FileBytes: anthropicFileBytes, Extra: anthropicExtra, Own: anthropicOwn,
	},
	"gemini": {
		Host: "generativelanguage.googleapis.com:443", Key: "GEMINI_API_KEY", System: "gcp.gemini",
		Takes: geminiTakes, Hosted: geminiHosted, Files: geminiFiles, FileBytes: geminiFileBytes, Extra: geminiExtra, Own: geminiOwn,
	},
}

// Described is a Provider with a Spec. Any other Provider has the zero Spec.
type Described interface {
	Provider
	Spec() Spec
}

// SpecsOf returns the built-in specs and those of providers, by name. The Spec of a Described provider takes the
// place of a built-in one with its name.
func SpecsOf(providers map[string]Provider) Specs {
	specs := BuiltinSpecs()
	for name, p := range providers {
		if d, ok := p.(Described); ok {
			specs[name] = d.Spec()
		} else if _, known := specs[name]; !known {
			specs[name] = Spec{}
		}
	}
	return specs
}
