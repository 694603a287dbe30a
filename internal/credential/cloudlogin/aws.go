package cloudlogin

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/auth/bearer"
)

// AWS returns the configuration for calls of Amazon Bedrock in a region. The value of the secret is an API key of
// Bedrock, the output of "aws configure export-credentials", or WorkerIdentity. The error is a *Error.
func (l *Logins) AWS(ctx context.Context, region, value string) (aws.Config, error) {
	if value == WorkerIdentity {
		cfg, err := identity(l, "aws", value, func() (aws.Config, error) {
			return within(ctx, func() (aws.Config, error) {
				return config.LoadDefaultConfig(context.Background(), config.WithRegion(region))
			})
		})
		if err != nil {
			return cfg, &Error{Text: fmt.Sprintf("the AWS configuration of the worker cannot be read (%v): correct it", err)}
		}
		cfg.Region = region
		return cfg, nil
	}
	cfg := aws.Config{Region: region}
	var exported struct{ AccessKeyID, SecretAccessKey, SessionToken string } // names match without regard to case
	switch is, err := object(value, &exported); {
	case !is:
		cfg.BearerAuthTokenProvider = bearer.StaticTokenProvider{Token: bearer.Token{Value: value}}
	case err != nil || exported.AccessKeyID == "" || exported.SecretAccessKey == "":
		return cfg, refused(`the secret for Amazon Bedrock is not valid: set it to an API key of Bedrock, to {"AccessKeyId": …, "SecretAccessKey": …}, or to %s`, WorkerIdentity)
	default:
		cfg.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: exported.AccessKeyID, SecretAccessKey: exported.SecretAccessKey, SessionToken: exported.SessionToken}, nil
		})
	}
	return cfg, nil
}
