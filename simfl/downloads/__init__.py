"""Downloads: public data sets from their addresses, with checksums."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="public data sets, downloaded and checked",
    commands={"data": "simfl.downloads.data_command:app"},
)
