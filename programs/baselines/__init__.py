"""What RA-ISF is compared with, a file a system."""
