"""The errors that Azure Files documents, and how it words them on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from cloudbench.rehearsal.server import Response

_DOCUMENTED = {
    "AuthenticationFailed": (
        403,
        "Server failed to authenticate the request. Make sure the value of the Authorization header is formed correctly"
        " including the signature.",
    ),
    "AuthorizationFailure": (403, "This request is not authorized to perform this operation."),
    "AuthorizationPermissionMismatch": (
        403,
        "This request is not authorized to perform this operation using this permission.",
    ),
    "AuthorizationProtocolMismatch": (
        403,
        "This request is not authorized to perform this operation using this protocol.",
    ),
    "AuthorizationResourceTypeMismatch": (
        403,
        "This request is not authorized to perform this operation using this resource type.",
    ),
    "ConditionHeadersNotSupported": (400, "Condition headers are not supported."),
    "DirectoryNotEmpty": (409, "The specified directory is not empty."),
    "InvalidAuthenticationInfo": (400, "Authentication information is not given in the correct format."),
    "InvalidFileOrDirectoryPathName": (400, "The file or directory path name includes invalid characters."),
    "InvalidHeaderValue": (400, "The value for one of the HTTP headers is not in the correct format."),
    "InvalidMetadata": (400, "The metadata specified is invalid. It has characters that are not permitted."),
    "InvalidQueryParameterValue": (
        400,
        "Value for one of the query parameters specified in the request URI is invalid.",
    ),
    "InvalidRange": (416, "The range specified is invalid for the current size of the resource."),
    "InvalidResourceName": (400, "The specified resource name contains invalid characters."),
    "InvalidUri": (400, "The requested URI does not represent any resource on the server."),
    "Md5Mismatch": (400, "The MD5 value specified in the request did not match with the MD5 value calculated."),
    "MetadataTooLarge": (400, "The size of the specified metadata exceeds the maximum size permitted."),
    "MissingRequiredHeader": (400, "An HTTP header that's mandatory for this request is not specified."),
    "NoAuthenticationInformation": (401, "Server failed to authenticate the request. It carries no authentication."),
    "OperationTimedOut": (500, "Operation could not be completed within the specified time."),
    "OutOfRangeInput": (400, "One of the request inputs is out of range."),
    "OutOfRangeQueryParameterValue": (400, "One of the query parameters specified in the request URI is out of range."),
    "ParentNotFound": (404, "The specified parent path does not exist."),
    "RequestBodyTooLarge": (413, "The request body is too large and exceeds the maximum permissible limit."),
    "ResourceAlreadyExists": (409, "The specified resource already exists."),
    "ResourceNotFound": (404, "The specified resource does not exist."),
    "ResourceTypeMismatch": (409, "The specified resource type does not match the type of the existing resource."),
    "ServerBusy": (503, "The server is currently unable to receive requests. Please retry your request."),
    "ShareAlreadyExists": (409, "The specified share already exists."),
    "ShareBeingDeleted": (409, "The specified share is being deleted. Try operation later."),
    "ShareNotFound": (404, "The specified share does not exist."),
    "ShareSnapshotNotFound": (404, "The specified share snapshot does not exist."),
    "UnsupportedHttpVerb": (405, "The resource doesn't support the specified HTTP verb."),
    "UnsupportedQueryParameter": (400, "One of the query parameters specified in the request URI is not supported."),
}


class RefusedError(Exception):
    """A request that is refused: a documented code, details that its body names, and headers beside the usual ones."""

    def __init__(
        self, code: str, *, details: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code)
        self.code = code
        self.status, self.message = _DOCUMENTED[code]
        self.details = details or {}
        self.headers = headers or {}

    def response(self) -> Response:
        """The status, `x-ms-error-code` and the XML that names code, message and details."""
        fields = {"Code": self.code, "Message": self.message, **self.details}
        inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
        return Response(
            status=self.status,
            headers={"Content-Type": "application/xml", "x-ms-error-code": self.code, **self.headers},
            body=f'<?xml version="1.0" encoding="utf-8"?><Error>{inner}</Error>'.encode(),
        )


def invalid_header(name: str, value: str) -> RefusedError:
    """A header whose value the service cannot take."""
    return RefusedError("InvalidHeaderValue", details={"HeaderName": name, "HeaderValue": value})


def missing_header(name: str) -> RefusedError:
    """A header that the operation cannot do without."""
    return RefusedError("MissingRequiredHeader", details={"HeaderName": name})
