#!/bin/sh
# Lints both checked-in OpenAPI documents. Needs node and npx; downloads the linter once.
set -eu
cd "$(dirname "$0")/../openapi"
REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true npx --yes @redocly/cli@2.77.0 lint --config redocly.yaml openapi.json openapi-3.0.json
