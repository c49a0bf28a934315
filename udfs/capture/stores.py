"""Says what the URI of an object store means to each library, by the environment's usual names.

`s3:` and `s3a:`, `abfs:` and `abfss:`, and `gs:` are one store to a person, but not to pyarrow, delta-rs and Hadoop.
What the environment does not say, such as the role of a machine, each library finds out by itself.
"""

import os
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

Kind = TypeVar("Kind")


class Place(NamedTuple):
    """Names an object: the scheme of its store, the bucket or container, the account or "", and the key."""

    scheme: str
    bucket: str
    account: str
    key: str

    @property
    def path(self) -> str:
        """Returns the path as pyarrow names it."""
        return f"{self.bucket}/{self.key}".rstrip("/")


_S3, _AZURE, _GOOGLE = ("s3", "s3a"), ("abfs", "abfss"), ("gs",)
_AZURE_HOST = ".dfs.core.windows.net"
_VARIABLES: Mapping[str, tuple[Collection[str], Collection[str]]] = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        (
            *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"),
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
        ),
    ),
    "abfs": (
        (
            *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID"),
            *("AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"),
        ),
        ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    ),
    "gs": ((), ("GOOGLE_APPLICATION_CREDENTIALS",)),
}
"""By kind of store, the variables of the environment that it is reached by: those with credentials, and others."""
_used: set[str] = set()
"""The kinds of stores that this process has used."""


def in_store(uri: str) -> bool:
    """Returns whether a URI names a place in an object store."""
    return uri.partition("://")[0] in (*_S3, *_AZURE, *_GOOGLE) and "://" in uri


def place_of(uri: str) -> Place:
    """Returns the place that a URI names; its key is taken as it is, without escapes.

    Raises:
        ValueError: it names no bucket, or the environment lacks or contradicts what the store needs; with what to set.
    """
    scheme, _, rest = uri.partition("://")
    where, _, key = rest.partition("/")
    bucket, _, host = where.partition("@")
    if not bucket:
        raise ValueError(f"{uri} names no bucket: write {scheme}://BUCKET/FOLDER")
    place = Place(scheme, bucket, host.partition(".")[0], key.strip("/"))
    _of_kind(_REQUIRED, place)(place)
    _used.add(next(kind[0] for kind in (_S3, _AZURE, _GOOGLE) if scheme in kind))
    return place


def file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Returns pyarrow's file system and path of a URI.

    Raises:
        ValueError: as `place_of` does.
    """
    place = place_of(uri)
    return _of_kind(_FILE_SYSTEMS, place)(place.account), place.path


def write(uri: str, data: pa.Buffer) -> None:
    """Writes an object; a small one by one request.

    Raises:
        ValueError: as `place_of` does. OSError: the store refuses it or cannot be reached.
    """
    if not in_store(uri):
        system, path = fs.FileSystem.from_uri(uri)
    else:
        place = place_of(uri)
        system, path = _of_kind(_WRITERS, place)(place.account), place.path
    with system.open_output_stream(path) as out:
        out.write(data)


def read(uri: str) -> bytes:
    """Reads an object.

    Raises:
        ValueError: as `place_of` does. OSError: it is not there, or cannot be read.
    """
    system, path = file_system(uri) if in_store(uri) else fs.FileSystem.from_uri(uri)
    with system.open_input_file(path) as file:
        return bytes(file.read())


def handed_over() -> dict[str, str]:
    """Returns what tasks on other machines have to know of the stores that this process has used.

    These are variables of the environment, credentials among them: if one of these is set here, then all, with "" for
    those that are not. Where none is set, machines have a role, and tasks find it as this process did.
    """
    found: dict[str, str] = {}
    for kind in _used:
        keys, others = _VARIABLES[kind]
        found |= {name: os.environ[name] for name in others if name in os.environ}
        if any(map(os.environ.get, keys)):
            found |= {name: os.environ.get(name, "") for name in keys}
    return found


def take_over(given: Mapping[str, str]) -> None:
    """Gives this process, which runs tasks, what another process has `handed_over`."""
    for name, value in given.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def options(uri: str) -> dict[str, str]:
    """Returns the settings of the store of a URI, as delta-rs and obstore name them.

    Raises:
        ValueError: as `place_of` does.
    """
    place = place_of(uri)
    return {name: value for name, value in _of_kind(_OPTIONS, place)(place).items() if value}


def hadoop_uri(uri: str) -> str:
    """Returns the URI under which Hadoop, and so Spark, knows a place; of others than an object store as it is."""
    scheme, colon, rest = uri.partition("://")
    return f"{({'s3': 's3a', 'abfs': 'abfss'}).get(scheme, scheme)}{colon}{rest}"


def _of_kind(kinds: Mapping[str, Kind], place: Place) -> Kind:
    return kinds[next(kind[0] for kind in (_S3, _AZURE, _GOOGLE) if place.scheme in kind)]


def _said(*names: str) -> str:
    """Returns the first of these variables of the environment that is set; "" if none is."""
    return next(filter(None, (os.environ.get(name, "").strip() for name in names)), "")


def _s3_endpoint() -> str:
    return _said("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def _s3_region() -> str:
    """Returns the region; a store with an endpoint of its own need not have one."""
    return _said("AWS_REGION", "AWS_DEFAULT_REGION") or ("us-east-1" if _s3_endpoint() else "")


def _s3_by_host() -> bool:
    """Returns whether the bucket is part of the host's name, not of the path."""
    asked = _said("AWS_VIRTUAL_HOSTED_STYLE_REQUEST").lower()
    return asked == "true" or not (asked or _s3_endpoint())


def _require_s3(_: Place) -> None:
    endpoint = urlsplit(_s3_endpoint())
    if endpoint != urlsplit("") and (endpoint.scheme not in ("http", "https") or not endpoint.hostname):
        raise ValueError(f"AWS_ENDPOINT_URL is {_s3_endpoint()}: set it to a URL such as http://HOST:PORT")
    if not _s3_region():
        raise ValueError(
            "the store's region is not known: set AWS_REGION or, for a store of your own, AWS_ENDPOINT_URL"
        )
    for there, missing in (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    ):
        if _said(there) and not _said(missing):
            raise ValueError(f"{there} is set without {missing}: set both or none")


def _s3_options(_: Place) -> dict[str, str]:
    return {
        "aws_endpoint": _s3_endpoint(),
        "aws_region": _s3_region(),
        "aws_access_key_id": _said("AWS_ACCESS_KEY_ID"),
        "aws_secret_access_key": _said("AWS_SECRET_ACCESS_KEY"),
        "aws_session_token": _said("AWS_SESSION_TOKEN"),
        "aws_virtual_hosted_style_request": str(_s3_by_host()).lower(),
        "allow_http": "true" if _s3_endpoint().startswith("http://") else "",
    }


_s3_system, _azure_system, _google_system = cache(fs.S3FileSystem), cache(fs.AzureFileSystem), cache(fs.GcsFileSystem)


def _s3_files(_: str, *, in_one_request: bool = False) -> fs.FileSystem:
    endpoint = urlsplit(_s3_endpoint())
    return _s3_system(
        access_key=_said("AWS_ACCESS_KEY_ID") or None,
        secret_key=_said("AWS_SECRET_ACCESS_KEY") or None,
        session_token=_said("AWS_SESSION_TOKEN") or None,
        region=_s3_region(),
        scheme=endpoint.scheme or None,
        endpoint_override=f"{endpoint.netloc}{endpoint.path}" or None,
        force_virtual_addressing=_s3_by_host(),
        allow_delayed_open=in_one_request,
    )


def _azure_account(account: str) -> str:
    return account or _said("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")


def _azure_key() -> str:
    return _said("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY")


def _require_azure(place: Place) -> None:
    if not _azure_account(place.account):
        raise ValueError(
            f"the storage account is not known: set AZURE_STORAGE_ACCOUNT_NAME, or write {place.scheme}://"
            f"{place.bucket}@ACCOUNT{_AZURE_HOST}/FOLDER"
        )


def _azure_options(place: Place) -> dict[str, str]:
    return {
        "azure_storage_account_name": _azure_account(place.account),
        "azure_storage_account_key": _azure_key(),
        "azure_storage_sas_token": _said("AZURE_STORAGE_SAS_TOKEN"),
        "azure_storage_client_id": _said("AZURE_CLIENT_ID"),
        "azure_storage_client_secret": _said("AZURE_CLIENT_SECRET"),
        "azure_storage_tenant_id": _said("AZURE_TENANT_ID"),
    }


def _azure_files(account: str) -> fs.FileSystem:
    return _azure_system(
        _azure_account(account), account_key=_azure_key() or None, sas_token=_said("AZURE_STORAGE_SAS_TOKEN") or None
    )


def _require_google(_: Place) -> None:
    key = _said("GOOGLE_APPLICATION_CREDENTIALS")
    if key and not Path(key).is_file():
        raise ValueError(f"GOOGLE_APPLICATION_CREDENTIALS names {key}, which is no file: set it to a key file")


def _google_options(_: Place) -> dict[str, str]:
    return {"google_application_credentials": _said("GOOGLE_APPLICATION_CREDENTIALS")}


def _google_files(_: str) -> fs.FileSystem:
    return _google_system()


_REQUIRED: Mapping[str, Callable[[Place], None]] = {"s3": _require_s3, "abfs": _require_azure, "gs": _require_google}
_OPTIONS: Mapping[str, Callable[[Place], dict[str, str]]] = {
    "s3": _s3_options,
    "abfs": _azure_options,
    "gs": _google_options,
}
_FILE_SYSTEMS: Mapping[str, Callable[[str], fs.FileSystem]] = {
    "s3": _s3_files,
    "abfs": _azure_files,
    "gs": _google_files,
}
_WRITERS: Mapping[str, Callable[[str], fs.FileSystem]] = {
    **_FILE_SYSTEMS,
    "s3": partial(_s3_files, in_one_request=True),
}
