"""What `make` says while pip sets up: how far it is, in few lines."""

from deploy.local.packages import told


def test_of_pips_output_its_progress_and_large_downloads_are_told():
    collected = [
        f"Collecting thing-{number}==1.0 (from -r requirements.lock (line 2))" for number in range(45)
    ]
    lines = [
        "Ignoring colorama: markers 'sys_platform == \"win32\"' don't match your environment",
        *collected[:30],
        "  Downloading pyspark-4.2.1.tar.gz (450.6 MB)",
        "  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)",
        "  Downloading prometheus_client-0.26.0-py3-none-any.whl (64 kB)",
        "  Preparing metadata (pyproject.toml): started",
        *collected[30:],
        "Building wheels for collected packages: pyspark, sasl",
        "Installing collected packages: sortedcontainers, pytz, py4j",
        "Successfully installed py4j-0.10.9.9 pytz-2026.2 sortedcontainers-2.4.0",
    ]
    assert list(told(lines, most=48)) == [
        "  20 of at most 48 packages",
        "  downloading pyspark-4.2.1.tar.gz, 450.6 MB",
        "  40 of at most 48 packages",
        "  building pyspark, sasl",
        "  installing 3 packages",
    ]
