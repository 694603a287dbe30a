package anthropic

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/bedrock"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/vertex"
	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/turnpike-dev/turnpike/internal/credential/cloudlogin"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// inCloud returns the options for a call at an address of a cloud: the path, the body and the stream of that cloud, and
// the credentials that the secret stands for. For any other address it returns none. The caller must append them after
// its other options, which then see Anthropic's own requests and responses.
func (p *Provider) inCloud(ctx context.Context, at model.CloudAddress, secret string) ([]option.RequestOption, error) {
	switch at.Cloud {
	case model.Bedrock:
		cfg, err := p.logins.AWS(ctx, at.Region, secret)
		if err != nil {
			return nil, loginFailed(ctx, secret, err)
		}
		if at.Mantle {
			return mantle(ctx, at, cfg, secret)
		}
		return []option.RequestOption{
			bedrock.WithConfig(cfg), option.WithBaseURL(at.Base), // also of an endpoint in a VPC
			option.WithMiddleware(ownCredentials(cfg, secret)),
		}, nil
	case model.Vertex:
		token, err := p.logins.Google(ctx, secret)
		if err != nil {
			return nil, loginFailed(ctx, secret, err)
		}
		login, err := onVertex(ctx, at, token)
		if err != nil {
			return nil, loginFailed(ctx, secret, err)
		}
		return []option.RequestOption{login, option.WithBaseURL(at.Base)}, nil
	default:
		return nil, nil
	}
}

// onVertex returns the option of the SDK. The SDK panics if the worker's variables for Google's client certificates are
// invalid; onVertex returns that as an error.
func onVertex(ctx context.Context, at model.CloudAddress, token string) (login option.RequestOption, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Google Vertex AI cannot be used (%v): correct or unset the variables of the worker for Google's client certificates, such as GOOGLE_API_USE_CLIENT_CERTIFICATE", p)
		}
	}()
	source := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})
	return vertex.WithCredentials(ctx, at.Region, at.Project, &google.Credentials{TokenSource: source}), nil
}

// ownCredentials returns a middleware that refuses a request with other credentials than those of the secret: the SDK
// prefers the worker's variable AWS_BEARER_TOKEN_BEDROCK to all others. If the secret is WorkerIdentity, all
// credentials of the worker are permitted.
func ownCredentials(cfg aws.Config, secret string) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		sent, bearer := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		signs := cfg.Credentials != nil
		if secret != cloudlogin.WorkerIdentity && (bearer == signs || bearer && sent != secret) {
			return nil, &model.Error{
				Class: model.Auth, Provider: provider,
				Message: "the variable AWS_BEARER_TOKEN_BEDROCK of the worker would replace the credentials of the agent: unset it on the workers",
			}
		}
		return next(req)
	}
}

func mantle(ctx context.Context, at model.CloudAddress, cfg aws.Config, secret string) ([]option.RequestOption, error) {
	client := bedrock.MantleClientConfig{AWSRegion: at.Region, BaseURL: at.Base}
	if cfg.Credentials == nil {
		client.APIKey = secret
	} else {
		keys, err := cfg.Credentials.Retrieve(ctx)
		if err != nil {
			return nil, loginFailed(ctx, secret, err)
		}
		client.AWSAccessKey, client.AWSSecretAccessKey, client.AWSSessionToken = keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken
	}
	made, err := bedrock.NewMantleClient(ctx, client)
	if err != nil {
		return nil, loginFailed(ctx, secret, err)
	}
	return made.Options, nil
}

func loginFailed(ctx context.Context, secret string, err error) error {
	return model.LoginFailed(ctx, provider, secret, cloudlogin.IsRefused(err), err)
}
